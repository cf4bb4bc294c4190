use super::*;

#[test]
fn what_needed_a_key_is_kept_by_no_shared_cache() {
    let mut headers = HeaderMap::new();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=60"));
    headers.insert(header::VARY, HeaderValue::from_static("stream-incarnation"));
    make_private(&mut headers);
    assert_eq!(headers[header::CACHE_CONTROL], "private, max-age=60");
    assert_eq!(headers[header::VARY], "stream-incarnation, authorization");
    headers.insert(header::CACHE_CONTROL, names::NO_STORE);
    make_private(&mut headers);
    assert_eq!(headers[header::CACHE_CONTROL], "no-store");
}

#[test]
fn a_bearer_token_is_read_as_the_standard_spells_it() {
    let key = Credential::new(KeyId::new(7), [1, 2, 3, 4]);
    for scheme in ["Bearer", "bearer", "BEARER"] {
        assert_eq!(bearer(&format!("{scheme} {}", key.reveal())), Some(key.clone()));
    }
    for wrong in [key.reveal(), format!("Basic {}", key.reveal()), "Bearer".to_owned(), "Bearer ".to_owned()] {
        assert_eq!(bearer(&wrong), None, "{wrong}");
    }
}
