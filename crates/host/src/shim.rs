//! shim
#![allow(missing_docs, clippy::all)]
use crate::*;
use bytes::Bytes;
use highwater_pds::{AccountId, Head, State, Micros};
use highwater_repo::{Cid, Tid};
#[derive(Clone, Debug)]
pub struct Host;
#[derive(Debug)]
pub struct Export;
impl Export {
    pub fn head(&self) -> Head { panic!() }
    pub fn chunk(&mut self) -> Result<Option<Bytes>, ReadError> { panic!() }
}
impl Host {
    pub fn state<T>(&self, ask: impl FnOnce(&State) -> T) -> T { ask(&State::default()) }
    pub fn zone(&self) -> &highwater_pds::names::Zone { panic!() }
    pub fn now(&self) -> Micros { panic!() }
    pub fn write(&self, _: AccountId, _: WriteBatch) -> Pending<Result<Written, WriteRefused>> { panic!() }
    pub fn record(&self, _: AccountId, _: &str) -> Result<Option<(Cid, Bytes)>, ReadError> { panic!() }
    pub fn list(&self, _: AccountId, _: &List) -> Result<Vec<Listed>, ReadError> { panic!() }
    pub fn collections(&self, _: AccountId) -> Result<Vec<String>, ReadError> { panic!() }
    pub fn export(&self, _: AccountId) -> Result<Export, ReadError> { panic!() }
    pub fn blocks(&self, _: AccountId, _: &[Cid]) -> Result<Vec<(Cid, Bytes)>, ReadError> { panic!() }
    pub fn proof(&self, _: AccountId, _: &str) -> Result<Bytes, ReadError> { panic!() }
    pub fn subscribe(&self, _: Option<u64>) -> Result<subscription::Subscription, CursorRefused> { panic!() }
}
pub mod subscription {
    use bytes::Bytes;
    #[derive(Debug)]
    pub struct Subscription;
    #[derive(Debug)]
    pub enum Delivery { Frames(Vec<Bytes>), TooSlow, Ended(String) }
    impl Subscription {
        pub fn reads_disk(&self) -> bool { panic!() }
        pub fn take(&mut self) -> Option<Delivery> { panic!() }
        pub async fn ready(&mut self) {}
    }
}
