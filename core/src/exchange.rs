//! The two-buffer exchange between the write thread, which fills buffers, and the read thread,
//! which trains on them.
//!
//! A buffer is in exactly one place: idle (may be filled), with the write thread, ready (filled, in
//! the order of filling), or with the read thread. Ownership moves with the value, so a tuple can
//! be neither lost nor seen twice. The write thread's waits all have a time limit, so that it can
//! look for interrupts; the read thread's waits end when the exchange is closed. When the read
//! thread goes away, by return or by panic, the write thread is told at its next wait.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a wait of the write thread came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Wait<T> {
    /// It is there.
    Ready(T),
    /// Not yet; look for interrupts and ask again.
    NotYet,
    /// It will never come: the read thread is gone.
    Gone,
}

#[derive(Debug)]
struct State<B, R> {
    idle: Vec<B>,
    ready: VecDeque<B>,
    replies: VecDeque<R>,
    closed: bool,
    reader_gone: bool,
}

/// Shared by the two threads. `B` is a buffer (with whatever marks it as the last of an epoch),
/// `R` what the read thread answers.
#[derive(Debug)]
pub struct Exchange<B, R> {
    state: Mutex<State<B, R>>,
    changed: Condvar,
    stop: AtomicBool,
}

impl<B, R> Exchange<B, R> {
    /// An exchange with these buffers, all idle.
    pub fn new(buffers: Vec<B>) -> Arc<Self> {
        let state = State {
            idle: buffers,
            ready: VecDeque::with_capacity(2),
            replies: VecDeque::with_capacity(2),
            closed: false,
            reader_gone: false,
        };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new(), stop: AtomicBool::new(false) })
    }

    fn wait<T>(&self, limit: Duration, mut take: impl FnMut(&mut State<B, R>) -> Option<T>) -> Wait<T> {
        let deadline = Instant::now() + limit;
        let mut state = self.state.lock();
        loop {
            if let Some(taken) = take(&mut state) {
                return Wait::Ready(taken);
            }
            if state.reader_gone {
                return Wait::Gone;
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return match take(&mut state) {
                    Some(taken) => Wait::Ready(taken),
                    None => Wait::NotYet,
                };
            }
        }
    }

    /// Write thread: takes an idle buffer, waiting at most `limit`.
    pub fn take_idle(&self, limit: Duration) -> Wait<B> {
        self.wait(limit, |state| state.idle.pop())
    }

    /// Write thread: takes an answer, waiting at most `limit`.
    pub fn take_reply(&self, limit: Duration) -> Wait<R> {
        self.wait(limit, |state| state.replies.pop_front())
    }

    /// Write thread: hands over a filled buffer.
    pub fn submit(&self, buffer: B) {
        self.state.lock().ready.push_back(buffer);
        self.changed.notify_all();
    }

    /// Write thread: no more buffers will come; the read thread ends at once, also in the middle of
    /// a buffer, as soon as it looks at the stop flag.
    pub fn close(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Read thread: the next filled buffer; `None` once closed.
    pub fn next(&self) -> Option<B> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(buffer) = state.ready.pop_front() {
                return Some(buffer);
            }
            self.changed.wait(&mut state);
        }
    }

    /// Read thread: gives a buffer back to be filled.
    pub fn give_back(&self, buffer: B) {
        self.state.lock().idle.push(buffer);
        self.changed.notify_all();
    }

    /// Read thread: answers.
    pub fn reply(&self, reply: R) {
        self.state.lock().replies.push_back(reply);
        self.changed.notify_all();
    }

    /// The flag that the read thread looks at between mini-batches.
    pub fn stop_flag(&self) -> &AtomicBool {
        &self.stop
    }

    /// Read thread: hold this for the life of the thread. When it is dropped, also by a panic, the
    /// write thread learns that nothing will come any more.
    pub fn reader(self: &Arc<Self>) -> Reader<B, R> {
        Reader(Arc::clone(self))
    }
}

/// Says that the read thread is gone when it is dropped.
#[derive(Debug)]
pub struct Reader<B, R>(Arc<Exchange<B, R>>);

impl<B, R> Drop for Reader<B, R> {
    fn drop(&mut self) {
        self.0.state.lock().reader_gone = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::thread;

    const TICK: Duration = Duration::from_millis(50);

    #[derive(Debug, Default)]
    struct Buf {
        tuples: Vec<u32>,
        last: bool,
    }

    fn two() -> Arc<Exchange<Buf, Vec<u32>>> {
        Exchange::new(vec![Buf::default(), Buf::default()])
    }

    /// Reads epochs until closed; answers each epoch with the tuples it saw.
    fn read(exchange: &Arc<Exchange<Buf, Vec<u32>>>) {
        let reader = exchange.reader();
        let mut seen = Vec::new();
        while let Some(mut buffer) = exchange.next() {
            seen.append(&mut buffer.tuples);
            let last = std::mem::take(&mut buffer.last);
            exchange.give_back(buffer);
            if last {
                exchange.reply(std::mem::take(&mut seen));
            }
        }
        drop(reader);
    }

    fn idle(exchange: &Exchange<Buf, Vec<u32>>) -> Option<Buf> {
        loop {
            match exchange.take_idle(TICK) {
                Wait::Ready(buffer) => return Some(buffer),
                Wait::NotYet => continue,
                Wait::Gone => return None,
            }
        }
    }

    fn answer(exchange: &Exchange<Buf, Vec<u32>>) -> Option<Vec<u32>> {
        loop {
            match exchange.take_reply(TICK) {
                Wait::Ready(reply) => return Some(reply),
                Wait::NotYet => continue,
                Wait::Gone => return None,
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        /// Zero tuples, one tuple, a last short buffer, a last full one: each tuple once an epoch.
        #[test]
        fn every_tuple_is_seen_once_an_epoch(tuples in 0u32..40, capacity in 1usize..8, epochs in 1u32..4) {
            let exchange = two();
            thread::scope(|scope| {
                scope.spawn(|| read(&exchange));
                for _ in 0..epochs {
                    let mut next = 0;
                    loop {
                        let mut buffer = idle(&exchange).expect("the reader lives");
                        while next < tuples && buffer.tuples.len() < capacity {
                            buffer.tuples.push(next);
                            next += 1;
                        }
                        buffer.last = next == tuples;
                        let last = buffer.last;
                        exchange.submit(buffer);
                        if last { break; }
                    }
                    assert_eq!(answer(&exchange).expect("the reader lives"), (0..tuples).collect::<Vec<_>>());
                }
                exchange.close();
            });
        }
    }

    #[test]
    fn reader_that_stops_early_is_noticed_and_its_answer_is_kept() {
        let exchange = two();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _reader = exchange.reader();
                exchange.next();
                exchange.reply(vec![7]);
            });
            exchange.submit(Buf::default());
            while idle(&exchange).is_some() {}
            assert_eq!(answer(&exchange), Some(vec![7]));
            assert_eq!(answer(&exchange), None);
        });
    }

    #[test]
    fn reader_that_panics_is_noticed() {
        let exchange = two();
        let other = Arc::clone(&exchange);
        let handle = thread::spawn(move || {
            let _reader = other.reader();
            other.next();
            std::panic::resume_unwind(Box::new("boom"));
        });
        exchange.submit(Buf::default());
        assert_eq!(answer(&exchange), None);
        assert!(handle.join().is_err());
    }

    #[test]
    fn closing_ends_a_waiting_and_a_busy_reader() {
        for busy in [false, true] {
            let exchange = two();
            thread::scope(|scope| {
                scope.spawn(|| {
                    let _reader = exchange.reader();
                    while exchange.next().is_some() {
                        while busy && !exchange.stop_flag().load(Ordering::Relaxed) {
                            thread::yield_now();
                        }
                    }
                });
                exchange.submit(Buf::default());
                thread::sleep(Duration::from_millis(5));
                exchange.close();
            });
        }
    }

    #[test]
    fn write_thread_waits_no_longer_than_its_limit() {
        let exchange = two();
        let _reader = exchange.reader();
        let started = Instant::now();
        assert_eq!(exchange.take_reply(Duration::from_millis(20)), Wait::NotYet);
        assert!(started.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn buffers_of_a_failed_fill_are_simply_dropped() {
        let exchange = two();
        thread::scope(|scope| {
            scope.spawn(|| read(&exchange));
            drop(idle(&exchange));
            exchange.close();
        });
    }
}
