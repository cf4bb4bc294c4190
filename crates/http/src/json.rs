//! JSON mode: stored messages as the array that a read answers with.
//!
//! A message is stored as its own text without insignificant white space, followed by a line feed. No such text holds a
//! line feed (inside strings JSON has them escaped), so the line feeds are the boundaries.
//!
//! Source: PROTOCOL.md section 9.1.

use highwater_node::json::BOUNDARY;

/// The array that answers a read of these messages. They end where one of them ends.
pub(crate) fn array(messages: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(messages.len() + 2);
    out.push(b'[');
    let inner = messages.strip_suffix(&[BOUNDARY]).unwrap_or(messages);
    out.extend(inner.iter().map(|&byte| if byte == BOUNDARY { b',' } else { byte }));
    out.push(b']');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_one_array() {
        for (stored, answer) in [("", "[]"), ("1\n", "[1]"), ("1\n{\"a\":\"\\n\"}\n[]\n", "[1,{\"a\":\"\\n\"},[]]")] {
            assert_eq!(String::from_utf8_lossy(&array(stored.as_bytes())), answer);
        }
    }
}
