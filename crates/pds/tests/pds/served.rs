//! What is served of an account, by where it stands.

use highwater_pds::{Position, Standing, Status, Unserved};

/// The table of docs/reference/pds-accounts.md.
#[test]
fn an_account_is_served_exactly_while_its_position_is_active() {
    let active = Standing { activated: true, ..Standing::default() };
    let inactive = |status| (Some(Position::Inactive(status)), Err(Unserved::Inactive(status)));
    let (none, deleted) = ((None, Err(Unserved::NotFound)), Some(Position::Inactive(Status::Deleted)));
    let cases = [
        ("provisioned", Standing::default(), none),
        ("active", active, (Some(Position::Active), Ok(()))),
        ("active, and untold until its first write", Standing { until_first_write: true, ..active }, none),
        ("locked", Standing { suspended: true, ..active }, inactive(Status::Suspended)),
        ("taken down", Standing { taken_down: true, ..active }, inactive(Status::TakenDown)),
        ("deactivated", Standing { deactivated: true, ..active }, inactive(Status::Deactivated)),
        ("erased", Standing { erased: true, ..active }, (deleted, Err(Unserved::NotFound))),
        ("decommissioned", Standing { decommissioned: true, ..active }, inactive(Status::Deactivated)),
        (
            "locked and taken down",
            Standing { suspended: true, taken_down: true, ..active },
            inactive(Status::TakenDown),
        ),
        ("locked before it was active", Standing { suspended: true, ..Standing::default() }, none),
    ];
    for (name, standing, expected) in cases {
        let mut account = crate::server::row(highwater_pds::AccountId(1), "otter");
        account.standing = standing;
        assert_eq!((account.position(), account.served()), expected, "{name}");
    }
}
