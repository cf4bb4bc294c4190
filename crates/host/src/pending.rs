//! An answer that is still to come: waited for by a thread or by a task, and never left out.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// An answer that is still to come. A future, for tasks; threads call [`Pending::wait`].
#[must_use = "what was asked for may still fail"]
pub struct Pending<T>(Arc<Shared<T>>);

/// Where the answer goes. One that is dropped unused, as a panic does it, answers what it was made with for that.
pub struct Answer<T> {
    shared: Option<Arc<Shared<T>>>,
    unsaid: fn() -> T,
}

struct Shared<T> {
    place: Mutex<Place<T>>,
    answered: Condvar,
}

struct Place<T> {
    answer: Option<T>,
    waker: Option<Waker>,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Place<T>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, answer: T) {
        let mut place = self.lock();
        place.answer = Some(answer);
        let waker = place.waker.take();
        drop(place);
        self.answered.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A place for an answer, and where it goes.
pub fn pending<T>(unsaid: fn() -> T) -> (Answer<T>, Pending<T>) {
    let place = Mutex::new(Place { answer: None, waker: None });
    let shared = Arc::new(Shared { place, answered: Condvar::new() });
    (Answer { shared: Some(Arc::clone(&shared)), unsaid }, Pending(shared))
}

impl<T> Answer<T> {
    /// Says it.
    pub fn send(mut self, answer: T) {
        if let Some(shared) = self.shared.take() {
            shared.put(answer);
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.put((self.unsaid)());
        }
    }
}

impl<T> Pending<T> {
    /// An answer that is there already.
    pub fn ready(answer: T) -> Self {
        let place = Mutex::new(Place { answer: Some(answer), waker: None });
        Self(Arc::new(Shared { place, answered: Condvar::new() }))
    }

    /// Waits on this thread until the answer is there.
    pub fn wait(self) -> T {
        let mut place = self.0.lock();
        loop {
            if let Some(answer) = place.answer.take() {
                return answer;
            }
            place = self.0.answered.wait(place).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The answer, if it is there: for whoever drives the server by hand. It can be taken once.
    pub fn try_take(&mut self) -> Option<T> {
        self.0.lock().answer.take()
    }
}

impl<T> Future for Pending<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut place = self.0.lock();
        match place.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                place.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> std::fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("answered", &self.0.lock().answer.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_hears_of_it_even_if_nobody_answers() {
        let (answer, waiting) = pending(|| 0);
        let thread = std::thread::spawn(move || waiting.wait());
        answer.send(7);
        assert_eq!(thread.join().expect("no panic"), 7);
        let (answer, mut waiting) = pending(|| 0);
        assert_eq!(waiting.try_take(), None);
        drop(answer);
        assert_eq!(waiting.wait(), 0);
        assert_eq!(Pending::ready(3).wait(), 3);
    }
}
