//! The time that a request's head may take, kept by one timer for the whole connection.
//!
//! HTTP/1 gives every head a deadline of its own. To enter each into the runtime's timers and take it out again, behind
//! a lock that all share, costs more than the rest of a small request's waiting; and nearly all are taken out unused.
//! So a connection keeps its timer, which goes off at the deadline of some earlier head, and is only then set anew.

use hyper::rt::{Sleep, Timer};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// A connection's timer.
type Kept = Arc<Mutex<Option<Pin<Box<tokio::time::Sleep>>>>>;

/// The timer of one connection, of which one deadline runs at a time.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeadTimer(Kept);

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Deadline { kept: Arc::clone(&self.0), at: deadline.into() })
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, deadline: Instant) {
        *sleep = self.sleep_until(deadline);
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into()
    }
}

/// One head's deadline. Dropped before it passes, it leaves the timer as it is.
struct Deadline {
    kept: Kept,
    at: tokio::time::Instant,
}

impl Future for Deadline {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let timer = kept.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(self.at)));
        if timer.deadline() > self.at {
            timer.as_mut().reset(self.at);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= self.at {
                return Poll::Ready(());
            }
            // It went off for an earlier head, which came in time.
            timer.as_mut().reset(self.at);
        }
    }
}

impl Sleep for Deadline {}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    const HEAD: Duration = Duration::from_millis(40);

    #[tokio::test]
    async fn each_head_has_its_whole_time_though_the_timer_was_set_for_an_earlier_one() {
        let timer = HeadTimer::default();
        let begun = Instant::now();
        let mut first = timer.sleep(HEAD);
        assert!(futures_poll(&mut first).await.is_pending());
        drop(first);
        tokio::time::sleep(HEAD / 2).await;
        timer.sleep(HEAD).await;
        assert!(begun.elapsed() >= HEAD / 2 + HEAD, "not at the first head's deadline");
        timer.sleep(HEAD).await;
        assert!(begun.elapsed() >= HEAD / 2 + HEAD * 2, "and again");
    }

    #[tokio::test]
    async fn an_earlier_deadline_than_the_timer_has_is_kept_too() {
        let timer = HeadTimer::default();
        let mut late = timer.sleep(Duration::from_secs(3_600));
        assert!(futures_poll(&mut late).await.is_pending());
        drop(late);
        timer.sleep(HEAD).await;
    }

    async fn futures_poll(sleep: &mut Pin<Box<dyn Sleep>>) -> Poll<()> {
        std::future::poll_fn(|cx| Poll::Ready(sleep.as_mut().poll(cx))).await
    }
}
