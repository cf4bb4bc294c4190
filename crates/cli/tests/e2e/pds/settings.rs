//! Mistakes in the settings of accounts, found before anything is made.

use crate::bed::{folder, highwater, text};
use std::fs;

/// A zone without a listener for it passed, and so did what no relay and no reader can use.
#[test]
fn settings_of_accounts_that_cannot_work_are_refused_before_a_start() {
    let folder = folder();
    let (file, data) = (folder.path().join("highwater.toml"), folder.path().join("data"));
    for (settings, words) in [
        ("[pds]\ncontact = \"hello\"", "pds.contact"),
        ("[pds]\naccount_limit = 0", "pds.account_limit"),
        ("[pds]\nrequests_per_5_min = 0", "pds.requests_per_5_min"),
        (
            "[[listener]]\naddress = \"127.0.0.1:0\"\nservices = [\"streams\", \"admin\"]\n[pds]\nzone = \"pds.example.com\"",
            "no listener has the service xrpc",
        ),
        // There is no key yet either, which is no mistake and must not hide one.
        ("[pds]\nzone = \"pds.example.com\"\nadmin_password_file = \"/none\"", "pds.admin_password_file"),
        ("[pds]\nzone = \"pds.example.com\"\nencryption_file = \"/none\"", "pds.encryption_file"),
        ("[pds]\nzone = \"pds.example.com\"", "highwater key create"),
    ] {
        fs::write(&file, settings).expect("written");
        for command in ["check-config", "serve"] {
            let ran = highwater([command, "--config", text(&file), "--data", text(&data)]);
            ran.fails(2, &[words]);
        }
        assert!(!data.exists(), "{settings}: nothing was made");
    }
}
