use crate::vectors::cases;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use highwater_repo::key::{Curve, KeyError, PublicKey, SigningKey};

fn bytes(text: &serde_json::Value) -> Vec<u8> {
    STANDARD_NO_PAD.decode(text.as_str().expect("text").trim_end_matches('=')).expect("base64")
}

#[test]
fn signatures_stand_or_fall_as_the_vectors_say() {
    for case in cases("crypto/signature-fixtures.json", 6) {
        let key = PublicKey::parse(case["publicKeyDid"].as_str().expect("text")).expect("a key");
        let verified = key.verify(&bytes(&case["messageBase64"]), &bytes(&case["signatureBase64"]));
        assert_eq!(verified.is_ok(), case["validSignature"] == true, "{}", case["comment"]);
        assert_eq!(key.did_key(), case["publicKeyDid"].as_str().expect("text"));
    }
}

#[test]
fn secrets_have_the_public_keys_that_the_vectors_say() {
    for case in cases("crypto/w3c_didkey_K256.json", 5) {
        let hex = case["privateKeyBytesHex"].as_str().expect("text");
        let digits: Vec<u8> = hex.bytes().map(|b| (b as char).to_digit(16).expect("hex") as u8).collect();
        let secret: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        check(Curve::K256, &secret, &case);
    }
    for case in cases("crypto/w3c_didkey_P256.json", 1) {
        let secret = bs58::decode(case["privateKeyBytesBase58"].as_str().expect("text")).into_vec().expect("base58");
        check(Curve::P256, &secret, &case);
    }
}

fn check(curve: Curve, secret: &[u8], case: &serde_json::Value) {
    let secret: [u8; 32] = secret.try_into().expect("32 bytes");
    let key = SigningKey::from_secret(curve, &secret).expect("a secret");
    assert_eq!(key.public().did_key(), case["publicDidKey"].as_str().expect("text"));
    assert_eq!(key.secret(), secret);
    assert!(!format!("{key:?}").contains(&format!("{:?}", secret[0])) || secret[0] < 10, "a secret is not shown");
}

#[test]
fn signatures_are_always_the_same_and_have_a_low_s() {
    for curve in [Curve::K256, Curve::P256] {
        let key = SigningKey::from_secret(curve, &[3; 32]).expect("a secret");
        for message in 0..64u8 {
            let signature = key.sign(&[message]);
            assert_eq!(signature, key.sign(&[message]));
            assert_eq!(key.public().verify(&[message], &signature), Ok(()));
            assert!(signature[32] < 0x80, "a high s");
        }
    }
    assert!(SigningKey::from_secret(Curve::K256, &[0; 32]).is_err());
    assert!(PublicKey::parse("did:key:zQ3sh").is_err() && PublicKey::parse("").is_err());
}

/// A DID document of a megabyte kept whoever read it busy for minutes: decoding takes the square of the length.
#[test]
fn a_key_of_a_million_digits_is_refused_unread() {
    let long = "2".repeat(4_000_000);
    assert_eq!(PublicKey::parse(&format!("did:key:z{long}")), Err(KeyError::Form));
    assert_eq!(PublicKey::parse(&format!("z{long}")), Err(KeyError::Form));
}
