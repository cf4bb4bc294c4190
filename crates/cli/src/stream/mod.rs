//! `highwater stream …`: one stream, by hand or from a script.

mod append;
mod read;

use crate::arguments::StreamCommand;
use crate::exit::{self, Status};
use crate::output;
use anyhow::{Context as _, Result};
use highwater_client::{Answer, Append, Client, Create, Expiry, Head, Options, Outcome, Refusal, Stream, StreamUrl};
use serde_json::json;
use std::sync::Arc;

/// Runs one command.
pub fn run(command: StreamCommand) -> Result<()> {
    match command {
        StreamCommand::Create { url, content_type, ttl, expires_at, closed, json } => {
            let expiry = ttl.map(Expiry::Ttl).or(expires_at.map(Expiry::At));
            create(&url, &Create { content_type: &content_type, expiry, close: closed, body: None }, json)
        }
        StreamCommand::Append { url, file, content_type, close, json } => {
            append::run(&open(&url)?, file.as_deref(), content_type, close, json)
        }
        StreamCommand::Read { url, offset, leader, json } => read::all(&open(&url)?, offset, leader, json),
        StreamCommand::Tail { url, offset, json } => read::tail(&open(&url)?, offset, json),
        StreamCommand::Head { url, json } => head(&url, json),
        StreamCommand::Close { url, json } => close(&url, json),
        StreamCommand::Delete { url, yes } => delete(&url, yes),
    }
}

/// The stream behind a URL, with the token of the environment.
pub fn open(url: &str) -> Result<Stream> {
    let url = StreamUrl::parse(url).with_context(|| format!("{url} is not the URL of a stream"))?;
    let client = Client::new(Options::from_environment()).context("cannot set up the HTTP client")?;
    Ok(Stream::new(Arc::new(client), url))
}

/// The typed answer, or an error that says what came instead and what to do.
fn done<T>(stream: &Stream, answer: Answer<T>) -> Result<T> {
    let mut said = answer.describe();
    let url = stream.url();
    if let Outcome::Refused(refusal) = &answer.outcome {
        said.push_str(&advice(url.as_str(), refusal));
    }
    match answer.outcome {
        Outcome::Done(done) => Ok(done),
        Outcome::Refused(refusal) if matches!(refusal.status, 404 | 410) => {
            Err(exit::with(Status::NotFound, format!("{url}: {said}")))
        }
        Outcome::Refused(refusal) if refusal.status == 503 || refusal.status == 429 => {
            Err(exit::with(Status::Later, format!("{url}: {said}; nothing was done, try again")))
        }
        Outcome::Refused(_) => Err(exit::with(Status::Failed, format!("{url}: {said}; nothing was done"))),
        Outcome::Redirected => {
            Err(exit::with(Status::Failed, format!("{url}: answered with a redirect, which is not followed")))
        }
        Outcome::Unknown if answer.status == 0 => {
            // A certificate comes from something that runs.
            let advice = if said.contains("certificate") { "" } else { "; is the server running?" };
            Err(exit::with(Status::Later, format!("{url}: no answer ({said}){advice}")))
        }
        Outcome::Unknown => Err(exit::with(Status::Later, format!("{url}: {said}; whether it was done is not known"))),
    }
}

/// What to do about refusals whose own words do not say it; those of HEAD have none.
fn advice(url: &str, refusal: &Refusal) -> String {
    match (refusal.status, refusal.next) {
        (403 | 404, _) if !url.contains("/v1/stream/") => "; the URLs of streams have /v1/stream/ in them".to_owned(),
        (401, _) => "; give a key that is in force in HIGHWATER_TOKEN_FILE or HIGHWATER_TOKEN".to_owned(),
        (403, _) if refusal.producer.is_none() => "; the key may not do this here".to_owned(),
        (404, _) => "; there is no such stream: create it, or correct the path".to_owned(),
        (410, Some(retained)) => format!("; the bytes before {0} are gone: read on with --offset {0}", retained.0),
        (429, _) => "; the plan of the key's account allows no more for now".to_owned(),
        _ => String::new(),
    }
}

fn create(url: &str, create: &Create<'_>, json: bool) -> Result<()> {
    let stream = open(url)?;
    let (_, answer) = stream.create_with(create);
    let made = answer.status == 201;
    done(&stream, answer)?;
    let head = look(&stream)?;
    if json {
        let mut value = describe(&head);
        value["created"] = made.into();
        return output::json(&value);
    }
    let what = if made { "created" } else { "was there already, with these settings" };
    println!("{} {what}", stream.url());
    Ok(())
}

fn look(stream: &Stream) -> Result<Head> {
    let (_, head) = stream.head();
    done(stream, head.answer)
}

/// Whether a stream of this content type holds messages of JSON.
fn is_json(content_type: &str) -> bool {
    content_type.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn describe(head: &Head) -> serde_json::Value {
    let (ttl_s, expires_at) = match &head.expiry {
        None => (None, None),
        Some(Expiry::Ttl(ttl_s)) => (Some(ttl_s), None),
        Some(Expiry::At(at)) => (None, Some(at)),
    };
    json!({
        "incarnation": head.incarnation.to_string(),
        "next_offset": head.next.0,
        "retained_offset": head.retained.0,
        "closed": head.closed,
        "content_type": head.content_type,
        "ttl_s": ttl_s,
        "expires_at": expires_at,
    })
}

fn head(url: &str, json: bool) -> Result<()> {
    let head = look(&open(url)?)?;
    if json {
        return output::json(&describe(&head));
    }
    let expires = match head.expiry {
        None => "never".to_owned(),
        Some(Expiry::Ttl(ttl_s)) => format!("{ttl_s} s after it was last read or written"),
        Some(Expiry::At(at)) => at,
    };
    output::table(&[
        ("incarnation", head.incarnation.to_string()),
        ("next offset", head.next.0.to_string()),
        ("retained offset", head.retained.0.to_string()),
        ("closed", head.closed.to_string()),
        ("content type", head.content_type),
        ("expires", expires),
    ])
}

fn close(url: &str, json: bool) -> Result<()> {
    let stream = open(url)?;
    let content_type = look(&stream)?.content_type;
    let append = Append { body: &[], content_type: &content_type, incarnation: None, key: None, close: true };
    let (_, answer) = stream.append(&append);
    done(&stream, answer)?;
    if json {
        return output::json(&describe(&look(&stream)?));
    }
    println!("{} is closed", stream.url());
    Ok(())
}

fn delete(url: &str, yes: bool) -> Result<()> {
    let stream = open(url)?;
    let head = look(&stream)?;
    if !yes && !confirmed(&stream, &head)? {
        return Err(exit::with(Status::Failed, "nothing was deleted"));
    }
    let (_, answer) = stream.delete(Some(head.incarnation));
    done(&stream, answer)?;
    eprintln!("{} is deleted", stream.url());
    Ok(())
}

/// Asks for the stream's name, because its bytes cannot be brought back.
fn confirmed(stream: &Stream, head: &Head) -> Result<bool> {
    let url = stream.url().as_str();
    let name = url.rsplit('/').next().unwrap_or(url);
    eprintln!("{url} holds {}. Type {name} to delete it:", output::bytes(head.next.0));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line.trim() == name)
}
