//! Tokens by hand, and what must never be taken for one.

use super::*;
use highwater_pds::credentials::{REFRESH_SECONDS, SessionId};
use highwater_repo::key::{Curve, SigningKey};
use proptest::prelude::*;

const US: &str = "did:web:pds.example";
const NOW: u64 = 1_800_000_000;

fn key() -> SessionKey {
    SessionKey::new([42; 32])
}

fn claims(scope: TokenScope) -> SessionClaims {
    let subject = "did:web:7f3a9c.pds.example".to_owned();
    SessionClaims { scope, subject, session: SessionId([0xa5; 16]), generation: 3, issued: NOW }
}

fn join(header: &str, payload: &str, signature: &str) -> String {
    format!("{}.{}.{signature}", encode(header.as_bytes()), encode(payload.as_bytes()))
}

/// A token that the server's key signed, whatever it says.
fn signed(header: &str, payload: &str) -> String {
    use hmac::{Hmac, KeyInit as _, Mac as _};
    let body = format!("{}.{}", encode(header.as_bytes()), encode(payload.as_bytes()));
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&[42; 32]).expect("any length");
    mac.update(body.as_bytes());
    format!("{body}.{}", encode(&mac.finalize().into_bytes()))
}

/// The vector was made with Python's `hmac` and `base64`, from the header and the payload below.
#[test]
fn a_session_token_is_the_one_that_another_implementation_makes() {
    let token = key().mint(&claims(TokenScope::Access), US);
    let parts: Vec<_> = token.split('.').collect();
    assert_eq!(decode(parts[0]).expect("base64"), br#"{"typ":"at+jwt","alg":"HS256"}"#);
    let payload = format!(
        r#"{{"scope":"com.atproto.access","aud":"{US}","sub":"did:web:7f3a9c.pds.example","iat":{NOW},"exp":{},"jti":"{}.3"}}"#,
        NOW + 7_200,
        "a5".repeat(16)
    );
    assert_eq!(String::from_utf8(decode(parts[1]).expect("base64")).expect("text"), payload);
    assert_eq!(parts[2], "wxHCJ_dE5OUctNFniIinJR1PzPYdtoWEhFRUO_7kegE");
    assert_eq!(token, signed(r#"{"typ":"at+jwt","alg":"HS256"}"#, &payload));
}

#[test]
fn a_session_token_reads_back_until_its_time_is_over() {
    for (scope, lifetime) in [
        (TokenScope::Access, ACCESS_SECONDS),
        (TokenScope::AppPass, ACCESS_SECONDS),
        (TokenScope::AppPassPrivileged, ACCESS_SECONDS),
        (TokenScope::Refresh, REFRESH_SECONDS),
    ] {
        let token = key().mint(&claims(scope), US);
        assert_eq!(token, key().mint(&claims(scope), US), "the same claims, the same token");
        assert_eq!(key().verify(&token, US, NOW), Ok(claims(scope)));
        assert_eq!(key().verify(&token, US, NOW + lifetime - 1), Ok(claims(scope)));
        assert_eq!(key().verify(&token, US, NOW + lifetime), Err(TokenError::Expired));
        assert_eq!(key().verify(&token, "did:web:other.example", NOW), Err(TokenError::Audience));
        assert_eq!(SessionKey::new([43; 32]).verify(&token, US, NOW), Err(TokenError::Signature), "another server's");
    }
}

/// A token names an algorithm, and a server that believes it takes unsigned ones (`none`), or takes a public key for a secret.
#[test]
fn no_header_but_our_own_two_is_taken_whatever_signs_it() {
    let token = key().mint(&claims(TokenScope::Access), US);
    let payload = String::from_utf8(decode(token.split('.').nth(1).expect("three")).expect("base64")).expect("text");
    for header in [
        r#"{"typ":"at+jwt","alg":"none"}"#,
        r#"{"typ":"at+jwt","alg":"None"}"#,
        r#"{"typ":"at+jwt","alg":"HS512"}"#,
        r#"{"typ":"at+jwt","alg":"ES256K"}"#,
        r#"{"typ":"JWT","alg":"HS256"}"#,
        r#"{"alg":"HS256","typ":"at+jwt"}"#,
        r#"{"typ":"at+jwt","alg":"HS256","kid":"../../dev/null"}"#,
        r#"{"typ":"at+jwt","alg":"HS256","jwk":{}}"#,
        "{}",
    ] {
        assert_eq!(key().verify(&signed(header, &payload), US, NOW), Err(TokenError::Form), "{header}");
    }
    assert_eq!(key().verify(&join(r#"{"typ":"at+jwt","alg":"none"}"#, &payload, ""), US, NOW), Err(TokenError::Form));
    // A refresh token that claims to be an access token: the header is part of what is signed, and must fit the scope.
    let refresh = payload.replace("com.atproto.access", "com.atproto.refresh");
    let crossed = signed(r#"{"typ":"at+jwt","alg":"HS256"}"#, &refresh);
    assert_eq!(key().verify(&crossed, US, NOW), Err(TokenError::Form));
}

#[test]
fn a_changed_or_oversized_session_token_is_refused() {
    let token = key().mint(&claims(TokenScope::Access), US);
    for at in 0..token.len() {
        for other in [b'A', b'B', b'.', b'='] {
            let mut bytes = token.clone().into_bytes();
            if bytes[at] == other {
                continue;
            }
            bytes[at] = other;
            let changed = String::from_utf8(bytes).expect("ASCII");
            assert!(key().verify(&changed, US, NOW).is_err(), "{changed}");
        }
    }
    for changed in [format!("{token}."), format!("{token}A"), format!(".{token}"), token[1..].to_owned(), String::new()]
    {
        assert!(key().verify(&changed, US, NOW).is_err(), "{changed}");
    }
    assert_eq!(key().verify(&"a".repeat(1 << 20), US, NOW), Err(TokenError::Form));
    let long = format!("{}.{}.{}", "a".repeat(4_096), "b".repeat(4_096), "c".repeat(43));
    assert_eq!(key().verify(&long, US, NOW), Err(TokenError::Form));
}

#[test]
fn a_signed_payload_that_we_would_not_write_is_refused() {
    let header = r#"{"typ":"at+jwt","alg":"HS256"}"#;
    let id = "a5".repeat(16);
    let good = format!(
        r#"{{"scope":"com.atproto.access","aud":"{US}","sub":"did:web:a.example","iat":1,"exp":9,"jti":"{id}.1"}}"#
    );
    assert!(key().verify(&signed(header, &good), US, 1).is_ok());
    for (from, to) in [
        (r#""scope":"com.atproto.access","#, ""),
        ("com.atproto.access", "com.atproto.everything"),
        (r#""exp":9"#, r#""exp":"9""#),
        (r#""exp":9"#, r#""exp":-9"#),
        (r#""exp":9"#, r#""exp":9,"exp":99999999999"#),
        (r#""exp":9"#, r#""exp":9,"admin":true"#),
        (".1\"", "\""),
        (".1\"", ".-1\""),
        (&id, "a5"),
    ] {
        let bad = good.replace(from, to);
        assert_ne!(bad, good);
        assert_eq!(key().verify(&signed(header, &bad), US, 1), Err(TokenError::Form), "{bad}");
    }
}

fn service(curve: Curve) -> SigningKey {
    SigningKey::from_secret(curve, &[9; 32]).expect("a secret")
}

fn service_claims() -> ServiceClaims {
    ServiceClaims {
        iat: NOW,
        iss: "did:web:7f3a9c.pds.example".into(),
        aud: format!("{US}#atproto_pds"),
        exp: NOW + 60,
        lxm: Some("com.atproto.repo.uploadBlob".into()),
        jti: "1".into(),
    }
}

const EXPECTED: ServiceExpected = ServiceExpected { audience: US, method: "com.atproto.repo.uploadBlob", now: NOW };

fn judge(token: &str, key: &SigningKey) -> Result<ServiceClaims, ServiceError> {
    parse_service(token)?.judge(&key.public(), &EXPECTED)
}

#[test]
fn a_service_token_is_taken_by_whom_it_names_with_or_without_a_fragment() {
    for curve in [Curve::K256, Curve::P256] {
        let key = service(curve);
        for aud in [US.to_owned(), format!("{US}#atproto_pds"), format!("{US}#anything")] {
            let claims = ServiceClaims { aud, ..service_claims() };
            let token = mint_service(&key, &claims);
            assert_eq!(parse_service(&token).expect("a token").issuer(), claims.iss);
            assert_eq!(judge(&token, &key), Ok(claims));
        }
    }
}

#[test]
fn a_service_token_is_refused_for_each_thing_that_it_must_say() {
    let key = service(Curve::K256);
    let refused = |change: &dyn Fn(&mut ServiceClaims)| {
        let mut claims = service_claims();
        change(&mut claims);
        judge(&mint_service(&key, &claims), &key).expect_err("refused")
    };
    assert_eq!(refused(&|claims| claims.aud = "did:web:other.example#atproto_pds".into()), ServiceError::Audience);
    assert_eq!(refused(&|claims| claims.aud = format!("{US}.other.example")), ServiceError::Audience);
    assert_eq!(refused(&|claims| claims.lxm = Some("com.atproto.repo.deleteRecord".into())), ServiceError::Method);
    assert_eq!(refused(&|claims| claims.lxm = None), ServiceError::Method);
    assert_eq!(refused(&|claims| claims.exp = NOW), ServiceError::Expired);
    assert_eq!(refused(&|claims| claims.exp = NOW + 66), ServiceError::Lifetime);
    assert_eq!(refused(&|claims| claims.iat = NOW + 6), ServiceError::Lifetime);
    let other = SigningKey::from_secret(Curve::K256, &[10; 32]).expect("a secret");
    assert_eq!(judge(&mint_service(&other, &service_claims()), &key), Err(ServiceError::Signature));
}

#[test]
fn a_service_token_does_not_choose_its_algorithm() {
    let (k256, p256) = (service(Curve::K256), service(Curve::P256));
    let token = mint_service(&k256, &service_claims());
    assert_eq!(judge(&token, &p256), Err(ServiceError::Algorithm), "the key decides");
    let [_, payload, signature] = token.split('.').collect::<Vec<_>>()[..] else { panic!("three parts") };
    for (header, expected) in [
        (r#"{"typ":"JWT","alg":"none"}"#, ServiceError::Algorithm),
        (r#"{"typ":"JWT","alg":"HS256"}"#, ServiceError::Algorithm),
        (r#"{"typ":"JWT","alg":"ES256"}"#, ServiceError::Algorithm),
        (r#"{"typ":"at+jwt","alg":"ES256K"}"#, ServiceError::Form),
        (r#"{"typ":"refresh+jwt","alg":"ES256K"}"#, ServiceError::Form),
        (r#"{"typ":"JWT","alg":"ES256K","crit":["exp"]}"#, ServiceError::Form),
        (r#"{"typ":"JWT","alg":"ES256K","x":1}"#, ServiceError::Signature),
        (r#"{"typ":"JWT"}"#, ServiceError::Form),
    ] {
        let crafted = format!("{}.{payload}.{signature}", encode(header.as_bytes()));
        assert_eq!(judge(&crafted, &k256), Err(expected), "{header}");
    }
}

/// Anybody can make the other form of a signature; a list of tokens that were used would not know it again.
#[test]
fn a_service_token_with_a_high_s_is_refused() {
    let key = service(Curve::K256);
    let token = mint_service(&key, &service_claims());
    let (signed, signature) = token.rsplit_once('.').expect("three parts");
    let mut bytes: [u8; 64] = decode(signature).expect("base64").try_into().expect("64 bytes");
    // s becomes n - s.
    const ORDER: [u8; 32] = [
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, 0xba, 0xae,
        0xdc, 0xe6, 0xaf, 0x48, 0xa0, 0x3b, 0xbf, 0xd2, 0x5e, 0x8c, 0xd0, 0x36, 0x41, 0x41,
    ];
    let mut borrow = 0i16;
    for at in (0..32).rev() {
        let digit = i16::from(ORDER[at]) - i16::from(bytes[32 + at]) - borrow;
        borrow = i16::from(digit < 0);
        bytes[32 + at] = digit.rem_euclid(256) as u8;
    }
    let high = format!("{signed}.{}", encode(&bytes));
    assert!(judge(&token, &key).is_ok());
    assert_eq!(judge(&high, &key), Err(ServiceError::Signature));
}

#[test]
fn a_token_of_one_kind_is_none_of_the_other() {
    let session = key().mint(&claims(TokenScope::Access), US);
    assert!(matches!(parse_service(&session), Err(ServiceError::Form)));
    let service = mint_service(&service(Curve::K256), &service_claims());
    assert_eq!(key().verify(&service, US, NOW), Err(TokenError::Form));
    for bytes in [&b""[..], b"..", b"a.b.c", &[0xff; 9000], session.as_bytes()] {
        assert!(!token_anything(bytes));
    }
    assert!(token_anything(service.as_bytes()), "it reads, and nobody judged it");
}

proptest! {
    #[test]
    fn what_a_session_token_says_reads_back(
        subject in "[ -~é]{0,40}",
        session in any::<[u8; 16]>(),
        generation in any::<u32>(),
        issued in 0u64..1 << 40,
        refresh in any::<bool>(),
        audience in "[a-z:.]{1,30}",
    ) {
        let scope = if refresh { TokenScope::Refresh } else { TokenScope::AppPass };
        let claims = SessionClaims { scope, subject, session: SessionId(session), generation, issued };
        let token = key().mint(&claims, &audience);
        prop_assert_eq!(key().verify(&token, &audience, issued), Ok(claims.clone()));
        prop_assert_eq!(key().verify(&token, &audience, claims.expires()), Err(TokenError::Expired));
    }

    #[test]
    fn nothing_that_somebody_makes_up_is_a_token(header in ".{0,40}", payload in ".{0,80}", signature in prop::collection::vec(any::<u8>(), 0..80)) {
        let token = join(&header, &payload, &encode(&signature));
        prop_assert!(key().verify(&token, US, NOW).is_err());
        let key = service(Curve::K256);
        prop_assert!(judge(&token, &key).is_err());
    }
}
