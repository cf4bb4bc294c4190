//! Undoing a commit's operations from its own blocks: how a reader knows that they say all that happened.

use super::{Blocks, Tree, TreeError};
use crate::cid::Cid;
use crate::write::Operation;
use thiserror::Error;

/// Why operations could not be undone.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvertError {
    /// A node that is needed is missing or bad.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The tree does not hold what an operation says that it did.
    #[error("{path} is not what the operation made of it")]
    Contradiction {
        /// The key.
        path: String,
    },
}

/// The name of the tree before the operations, from the tree after them and blocks that need hold no others than its commit's.
///
/// The order of the operations does not matter.
/// # Errors
/// A node that is not there, or an operation that does not fit the tree.
/// Source: atproto sync specification, "Operation inversion".
pub fn invert(after: Cid, operations: &[Operation], blocks: &dyn Blocks) -> Result<Cid, InvertError> {
    let mut tree = Tree::open(after, blocks)?;
    for operation in operations {
        let path = operation.path.as_str();
        let was = match operation.previous {
            Some(previous) => tree.put(path, previous, blocks)?,
            None => tree.remove(path, blocks)?,
        };
        if was != operation.cid {
            return Err(InvertError::Contradiction { path: path.to_owned() });
        }
    }
    Ok(tree.seal().0)
}
