//! What was asked for in an account's name, when what let it in was withdrawn meanwhile.

mod support;

use highwater_host::{Asker, Authority, Change as Lifecycle, Pending, Refused, Withdrawn, WriteRefused};
use highwater_pds::credentials::{AppPassword, Change, Grant, SessionId};
use highwater_pds::{AccountId, Fact, Micros};
use support::{Server, batch, put};

fn keep(server: &Server, asker: impl Into<Asker>, change: Change) -> Pending<Result<(), Refused>> {
    let asker = asker.into();
    let account = asker.account;
    server.host.fact(asker, Fact::Credentials(account, change))
}

/// A change of the account's own, durable.
fn settled(server: &mut Server, account: AccountId, change: Change) {
    let pending = keep(server, account, change);
    server.settle(pending).expect("kept");
}

fn opened(server: &Server, id: SessionId) -> Change {
    Change::SessionOpened { id, grant: Grant::Full, at: server.host.now() }
}

fn sessions(server: &Server, account: AccountId) -> usize {
    server.host.state(|state| state.accounts[&account].credentials.sessions.len())
}

/// To check a password takes time. Whoever knew the old one had a session that outlived the change.
#[test]
fn a_login_whose_password_was_changed_or_revoked_while_it_was_checked_opens_no_session() {
    let mut server = Server::new(31);
    let account = server.account();
    let bot = AppPassword { salt: [1; 16], digest: [2; 32], privileged: false, created: Micros(0) };
    settled(&mut server, account, Change::Password("old".to_owned()));
    settled(&mut server, account, Change::AppPasswordCreated("bot".to_owned(), bot.clone()));
    for (authority, change) in [
        (Authority::Password("old".to_owned()), Change::Password("new".to_owned())),
        (Authority::AppPassword("bot".to_owned(), bot), Change::AppPasswordRevoked("bot".to_owned())),
    ] {
        let asker = Asker { account, authority };
        let before = keep(&server, asker.clone(), opened(&server, SessionId([1; 16])));
        assert_eq!(server.settle(before), Ok(()), "it stands");
        // What withdraws it is on its way, and not durable yet.
        let changing = keep(&server, account, change);
        let late = keep(&server, asker.clone(), opened(&server, SessionId([2; 16])));
        assert_eq!(server.settle(changing), Ok(()));
        assert_eq!(server.settle(late), Err(Refused::Withdrawn(Withdrawn::Password)));
        let later = keep(&server, asker, opened(&server, SessionId([3; 16])));
        assert_eq!(server.settle(later), Err(Refused::Withdrawn(Withdrawn::Password)));
        assert!(sessions(&server, account) <= 1, "the one from before, if its password stands");
    }
    let asker = Asker { account, authority: Authority::Password("new".to_owned()) };
    let login = keep(&server, asker, opened(&server, SessionId([4; 16])));
    assert_eq!(server.settle(login), Ok(()));
}

/// A body that was sent slowly was acted upon after a logout, a lock or another password.
#[test]
fn a_request_whose_session_ended_before_its_turn_changes_nothing() {
    let id = SessionId([5; 16]);
    for (seed, end, why) in [
        (32, Change::SessionClosed(id), Withdrawn::Ended),
        (33, Change::Password("another".to_owned()), Withdrawn::Ended),
    ] {
        let mut server = Server::new(seed);
        let account = server.account();
        let session = opened(&server, id);
        settled(&mut server, account, session);
        let asker = Asker { account, authority: Authority::Session(id) };
        let good = server.host.write(asker.clone(), batch(vec![put("a", "one")]));
        assert!(server.settle(good).is_ok(), "it stands");
        let frames = server.frames().len();
        let ending = keep(&server, account, end);
        let late = server.host.write(asker.clone(), batch(vec![put("b", "two")]));
        let password = AppPassword { salt: [1; 16], digest: [2; 32], privileged: true, created: Micros(0) };
        let thief = keep(&server, asker, Change::AppPasswordCreated("thief".to_owned(), password));
        assert_eq!(server.settle(ending), Ok(()));
        assert_eq!(server.settle(late).map(|_| ()), Err(WriteRefused::Withdrawn(why)));
        assert_eq!(server.settle(thief), Err(Refused::Withdrawn(why)));
        assert_eq!((server.frames().len(), server.text(account, "b")), (frames, None));
        let left = server.host.state(|state| state.accounts[&account].credentials.app_passwords.len());
        assert_eq!(left, 0);
    }
    let mut server = Server::new(34);
    let account = server.account();
    let session = opened(&server, id);
    settled(&mut server, account, session);
    let locking = server.host.change(account, Lifecycle::Lock);
    let asker = Asker { account, authority: Authority::Session(id) };
    let late = server.host.write(asker, batch(vec![put("b", "two")]));
    assert_eq!(server.settle(locking), Ok(true));
    assert_eq!(server.settle(late).map(|_| ()), Err(WriteRefused::Withdrawn(Withdrawn::Locked)));
}
