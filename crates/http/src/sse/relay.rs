//! One read for all readers of a stream that stand at its end.
//!
//! The first reader that comes to the end of a stream starts a relay: one task that waits at the node for everybody,
//! encodes what comes once, and wakes those who stand there; each then sends the same bytes. A reader whose connection is
//! slow loses its place and reads on its own, until it has caught up. The relay reads while somebody waits for more, and
//! ends with the last of its readers.

use super::encode::{Encoder, encode};
use super::line::{Event, Found, Line, Standing};
use super::room_bytes;
use crate::cursor;
use crate::router::App;
use crate::service::Service;
use highwater_base::limits::LONG_POLL_MS_MAX;
use highwater_base::{Incarnation, Offset};
use highwater_node::ReadRequest;
use highwater_node::rooms::Asker;
use highwater_stream::ReadFrom;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// The relays of a server, by stream and history, each with the number of its readers.
#[derive(Default)]
pub(crate) struct Relays {
    by_stream: Mutex<BTreeMap<Key, (Arc<Relay>, usize)>>,
    /// Readers by events, wherever they stand.
    readers: AtomicUsize,
    next: AtomicU64,
}

type Key = (String, Incarnation);

impl std::fmt::Debug for Relays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relays").field("readers", &self.readers()).finish_non_exhaustive()
    }
}

/// A reader by events, counted while it is there.
pub(crate) struct Reader(Arc<Relays>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Relays {
    /// Readers by events.
    pub(crate) fn readers(&self) -> u64 {
        self.readers.load(Ordering::Relaxed) as u64
    }

    /// Counts one more, if there are fewer than `most`.
    pub(crate) fn enter(self: &Arc<Self>, most: usize) -> Option<Reader> {
        let reader = Reader(self.clone());
        (self.readers.fetch_add(1, Ordering::Relaxed) < most).then_some(reader)
    }

    /// Gives a seat at the relay of a stream. `request` reads it, and says which bytes follow those that this reader has
    /// seen; `encoder` holds what it holds.
    pub(crate) fn sit<S: Service>(
        app: &App<S>,
        request: &ReadRequest,
        next: Offset,
        encoder: &Encoder,
    ) -> Option<Seat> {
        let relays = &app.relays;
        let key = (request.path.clone(), request.incarnation?);
        let id = relays.next.fetch_add(1, Ordering::Relaxed);
        let mut by_stream = relays.lock();
        let known = by_stream.get_mut(&key).map(|(relay, readers)| {
            *readers += 1;
            relay.clone()
        });
        let relay = known.unwrap_or_else(|| {
            let relay = Arc::new(Relay::new(Line::new(next, encoder.clone())));
            by_stream.insert(key.clone(), (relay.clone(), 1));
            drop(by_stream);
            // Without the lock: a runtime that stops drops the task at once, and that takes it.
            let pump = Pump { app: app.clone(), relay: relay.clone(), key: key.clone(), encoder: encoder.clone() };
            let request = ReadRequest { from: ReadFrom::At(next), leader: false, ..request.clone() };
            relay.task.get_or_init(|| tokio::spawn(pump.run(request)).abort_handle());
            relay
        });
        Some(Seat { relays: relays.clone(), key, relay, id, standing: None })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, (Arc<Relay>, usize)>> {
        self.by_stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a relay out that takes no reader any more.
    fn remove(&self, key: &Key, relay: &Arc<Relay>) {
        let mut by_stream = self.lock();
        if by_stream.get(key).is_some_and(|(known, _)| Arc::ptr_eq(known, relay)) {
            by_stream.remove(key);
        }
    }

    /// One reader of a relay less; the last one ends it.
    fn rise(&self, key: &Key, relay: &Arc<Relay>) {
        let mut by_stream = self.lock();
        let Some((known, readers)) = by_stream.get_mut(key) else { return };
        if !Arc::ptr_eq(known, relay) {
            return;
        }
        *readers -= 1;
        if *readers > 0 {
            return;
        }
        by_stream.remove(key);
        drop(by_stream);
        if let Some(task) = relay.task.get() {
            task.abort();
        }
    }
}

/// What the readers of one stream share.
pub(crate) struct Relay {
    line: Mutex<Line>,
    /// Told when somebody waits for more again.
    wanted: Notify,
    task: OnceLock<AbortHandle>,
}

impl Relay {
    fn new(line: Line) -> Self {
        Self { line: Mutex::new(line), wanted: Notify::new(), task: OnceLock::new() }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // Nothing panics while it holds the lock, and the line is whole between any two calls.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, event: Event) {
        let wakers = self.line().push(event);
        wakers.into_values().for_each(std::task::Waker::wake);
    }

    fn end(&self) {
        let wakers = self.line().end();
        wakers.into_values().for_each(std::task::Waker::wake);
    }

    async fn wanted(&self) {
        loop {
            // The one permit that `Notify` keeps is enough: only the pump waits.
            let notified = self.wanted.notified();
            if self.line().is_wanted() {
                return;
            }
            notified.await;
        }
    }
}

/// The task of a relay.
struct Pump<S> {
    app: App<S>,
    relay: Arc<Relay>,
    key: Key,
    encoder: Encoder,
}

impl<S> Drop for Pump<S> {
    fn drop(&mut self) {
        // Whoever comes now starts another; whoever waits here comes again, and hears why from a read of its own.
        self.app.relays.remove(&self.key, &self.relay);
        self.relay.end();
    }
}

impl<S: Service> Pump<S> {
    /// Reads until the stream ends, goes, or cannot be read, or the server stops.
    async fn run(mut self, mut request: ReadRequest) {
        request.wait_ms = Some(LONG_POLL_MS_MAX);
        loop {
            self.relay.wanted().await;
            let read = tokio::select! {
                read = self.app.service.read(request.clone()) => read,
                () = self.app.closing.wait() => return,
            };
            let Ok(Ok(answer)) = read else { return };
            if answer.timed_out {
                continue;
            }
            // Once for everybody, before it is made.
            let Some(room) = self.app.answers.wait(room_bytes(&answer), Asker::NOBODY).await else { return };
            let before = self.encoder.clone();
            let cursor = cursor::next(cursor::now_s(), None, 0);
            let (bytes, data) = encode(&mut self.encoder, &answer, cursor, false).unwrap_or_default();
            let bytes = room.around(bytes.into());
            request.from = ReadFrom::At(answer.next);
            self.relay.push(Event {
                start: answer.start,
                before,
                next: answer.next,
                after: self.encoder.clone(),
                bytes,
                data,
                cursor,
                up_to_date: answer.up_to_date,
                closed: answer.closed,
            });
            if answer.closed {
                return;
            }
        }
    }
}

/// What a reader hears of its relay.
#[derive(Debug)]
pub(crate) enum Heard {
    /// What follows the place where it stood.
    Event(Arc<Event>),
    /// It must read on its own, from where it is.
    Apart,
    /// Nothing will come here any more.
    Ended,
}

/// A reader's seat at a relay.
pub(crate) struct Seat {
    relays: Arc<Relays>,
    key: Key,
    relay: Arc<Relay>,
    id: u64,
    standing: Option<Standing>,
}

impl Seat {
    /// What follows `next`, up to which this reader has read with an encoder that is now in the state of `encoder`.
    pub(crate) fn poll(&mut self, next: Offset, encoder: &Encoder, cx: &Context<'_>) -> Poll<Heard> {
        let mut line = self.relay.line();
        loop {
            match self.standing {
                None => {
                    let was_wanted = line.is_wanted();
                    self.standing = line.stand(next, encoder);
                    if self.standing.is_none() {
                        return Poll::Ready(Heard::Apart);
                    }
                    if !was_wanted && line.is_wanted() {
                        self.relay.wanted.notify_one();
                    }
                }
                Some(Standing::Ahead) if line.has_reached(next) => {
                    line.leave(Standing::Ahead);
                    self.standing = None;
                }
                Some(Standing::Ahead) => break,
                Some(Standing::Before(number)) => {
                    let was_wanted = line.is_wanted();
                    match line.take(number) {
                        Found::Event(event) => {
                            self.standing = Some(Standing::Before(number + 1));
                            if !was_wanted && line.is_wanted() {
                                self.relay.wanted.notify_one();
                            }
                            return Poll::Ready(Heard::Event(event));
                        }
                        Found::Lost => self.standing = None,
                        Found::Nothing => break,
                    }
                }
            }
        }
        if line.has_ended() {
            return Poll::Ready(Heard::Ended);
        }
        line.wait(self.id, cx.waker());
        Poll::Pending
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut line = self.relay.line();
        if let Some(standing) = self.standing.take() {
            line.leave(standing);
        }
        line.forget(self.id);
        drop(line);
        self.relays.rise(&self.key, &self.relay);
    }
}
