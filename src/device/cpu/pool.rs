//! Threads that share the chunks of one job: a few workers beside the caller, who works too.
//!
//! **Protocol.** A job is a function and a number of chunks. The caller writes the job, sets
//! `unfinished` and then `unclaimed` to the number of chunks, and claims chunks until none is left;
//! workers do the same. A claim takes one from `unclaimed` by compare-and-swap, and only where it is
//! above 0; whoever ends a chunk takes one from `unfinished`. The caller goes on when `unfinished` is
//! 0, so it never waits for a worker that has not begun: one that the system put aside costs
//! nothing, one that was put aside inside a chunk costs that chunk.
//!
//! *Why the job may be read*: it is read after a claim and before the end of the claimed chunk. While
//! a claimed chunk is not ended, `unfinished` is above 0 and the caller has not returned, so the job
//! is neither written nor its function gone.
//!
//! *Why no wake-up is lost*: a worker counts itself among `sleepers` and then looks for unclaimed
//! chunks, under the lock under which it begins to wait; the caller sets `unclaimed` and then looks
//! for sleepers. All are sequentially consistent, so one of both sees the other; and where the caller
//! sees a sleeper it takes the lock before it notifies. The caller's own wait mirrors this.
//!
//! Everyone spins for [`SPIN`] before parking: the steps of a decoder follow each other closely, and
//! a busy machine loses no more than that to each wait. `pool_model` walks every interleaving of this
//! protocol for small numbers of threads, jobs and chunks.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a thread looks for work, or for the end of a job, before it parks.
const SPIN: Duration = Duration::from_micros(60);
/// Looks between two readings of the clock.
const LOOKS: usize = 32;

/// The threads of a device.
pub(super) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// A job runs; one that begins meanwhile (inside a chunk, or from another thread) runs on its
    /// own thread alone.
    busy: AtomicBool,
}

/// A word that many threads write, on cache lines of its own.
#[repr(align(128))]
struct Apart<T>(T);

struct Shared {
    /// Chunks of the job that nobody has begun.
    unclaimed: Apart<AtomicUsize>,
    /// Chunks of the job that have not ended.
    unfinished: Apart<AtomicUsize>,
    job: UnsafeCell<Job>,
    /// Workers that wait for `work`, or are about to.
    sleepers: AtomicUsize,
    /// The caller waits for `finished`, or is about to.
    caller_sleeps: AtomicBool,
    closing: AtomicBool,
    lock: Mutex<()>,
    work: Condvar,
    finished: Condvar,
    /// What the first chunk that panicked threw.
    thrown: Mutex<Option<Box<dyn Any + Send>>>,
}

#[derive(Clone, Copy)]
struct Job {
    chunks: usize,
    run: *const (dyn Fn(usize) + Sync),
}

// SAFETY: `job` is the one field that is not Sync of itself. It is written by the caller while no
// chunk is claimed or claimable, and read between a claim and the end of the claimed chunk (see the
// head); the function in it is Sync.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer carries no thread's state.
unsafe impl Send for Shared {}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in a chunk is caught before any lock is taken; nothing can be half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool of `threads` threads, the caller's included.
    pub(super) fn new(threads: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            unclaimed: Apart(AtomicUsize::new(0)),
            unfinished: Apart(AtomicUsize::new(0)),
            job: UnsafeCell::new(Job { chunks: 0, run: &|_: usize| () }),
            sleepers: AtomicUsize::new(0),
            caller_sleeps: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            lock: Mutex::new(()),
            work: Condvar::new(),
            finished: Condvar::new(),
            thrown: Mutex::new(None),
        });
        let mut pool = Self { shared, workers: Vec::new(), busy: AtomicBool::new(false) };
        for i in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let builder = std::thread::Builder::new().name(format!("unsay-cpu-{i}"));
            // Where one fails, dropping the pool ends those that began.
            pool.workers.push(builder.spawn(move || shared.serve())?);
        }
        Ok(pool)
    }

    /// The caller and the workers.
    pub(super) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `work` once for each number below `chunks`, in any order, on any of the threads; returns
    /// when all have ended. A panic in a chunk is thrown here, after the other chunks ended or were
    /// passed over.
    pub(super) fn run(&self, chunks: usize, work: &(dyn Fn(usize) + Sync)) {
        if chunks < 2 || self.workers.is_empty() || self.busy.swap(true, SeqCst) {
            (0..chunks).for_each(work);
            return;
        }
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes; `run` returns after the last use (see the head).
        let run = unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync)>(
                work,
            )
        };
        // SAFETY: `busy` makes this the one caller, and the job before has ended.
        unsafe { *shared.job.get() = Job { chunks, run } };
        shared.unfinished.0.store(chunks, SeqCst);
        shared.unclaimed.0.store(chunks, SeqCst);
        shared.wake(chunks - 1);
        while shared.work_on_a_chunk() {}
        shared.wait_for_the_end();
        let thrown = locked(&shared.thrown).take();
        self.busy.store(false, SeqCst);
        if let Some(thrown) = thrown {
            resume_unwind(thrown);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.closing.store(true, SeqCst);
        drop(locked(&self.shared.lock));
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches what chunks throw, so it has nothing to tell.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// Wakes up to `wanted` parked workers.
    fn wake(&self, wanted: usize) {
        let sleepers = self.sleepers.load(SeqCst);
        if sleepers == 0 {
            return;
        }
        drop(locked(&self.lock));
        if wanted < sleepers {
            (0..wanted).for_each(|_| self.work.notify_one());
        } else {
            self.work.notify_all();
        }
    }

    /// Claims a chunk and runs it; false where none was left.
    fn work_on_a_chunk(&self) -> bool {
        let mut left = self.unclaimed.0.load(SeqCst);
        while left > 0 {
            match self.unclaimed.0.compare_exchange(left, left - 1, SeqCst, SeqCst) {
                Ok(_) => {
                    self.run_claimed(left);
                    return true;
                }
                Err(now) => left = now,
            }
        }
        false
    }

    /// Runs the chunk whose claim found `left` chunks unclaimed.
    fn run_claimed(&self, left: usize) {
        // SAFETY: a chunk is claimed and has not ended, so the job stays as it is.
        let Job { chunks, run } = unsafe { *self.job.get() };
        // SAFETY: as above, and the function lives as long as the job.
        let run = unsafe { &*run };
        if let Err(thrown) = catch_unwind(AssertUnwindSafe(|| run(chunks - left))) {
            locked(&self.thrown).get_or_insert(thrown);
        }
        if self.unfinished.0.fetch_sub(1, SeqCst) == 1 && self.caller_sleeps.load(SeqCst) {
            drop(locked(&self.lock));
            self.finished.notify_one();
        }
    }

    fn wait_for_the_end(&self) {
        let ended = || self.unfinished.0.load(SeqCst) == 0;
        if spin_until(ended) {
            return;
        }
        let mut guard = locked(&self.lock);
        self.caller_sleeps.store(true, SeqCst);
        while !ended() {
            guard = self.finished.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.caller_sleeps.store(false, SeqCst);
    }

    /// A worker's life.
    fn serve(&self) {
        loop {
            while self.work_on_a_chunk() {}
            let called = || self.unclaimed.0.load(SeqCst) > 0 || self.closing.load(SeqCst);
            if !spin_until(called) {
                let mut guard = locked(&self.lock);
                self.sleepers.fetch_add(1, SeqCst);
                while !called() {
                    guard = self.work.wait(guard).unwrap_or_else(PoisonError::into_inner);
                }
                self.sleepers.fetch_sub(1, SeqCst);
            }
            if self.closing.load(SeqCst) {
                return;
            }
        }
    }
}

/// Looks at `done` for at most [`SPIN`]; whether it came true.
fn spin_until(done: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
        if begun.elapsed() > SPIN {
            return done();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(threads: usize) -> Pool {
        Pool::new(threads).expect("threads")
    }

    #[test]
    fn every_chunk_runs_once_however_many_threads_and_chunks() {
        for threads in 1..=5 {
            let pool = pool(threads);
            for round in 0..300 {
                let chunks = round % 23;
                let seen: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
                pool.run(chunks, &|i| {
                    seen[i].fetch_add(1, SeqCst);
                });
                assert!(seen.iter().all(|count| count.load(SeqCst) == 1), "{threads} threads");
            }
        }
    }

    #[test]
    fn workers_that_parked_are_woken() {
        let pool = pool(3);
        for _ in 0..20 {
            std::thread::sleep(3 * SPIN);
            let all = std::sync::Barrier::new(3);
            // Ends only if three threads meet in it.
            pool.run(3, &|_| {
                all.wait();
            });
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
        let pool = pool(3);
        for bad in 0..8 {
            let ran = AtomicUsize::new(0);
            let thrown = catch_unwind(AssertUnwindSafe(|| {
                pool.run(8, &|i| {
                    ran.fetch_add(1, SeqCst);
                    assert!(i != bad, "chunk {i}");
                });
            }));
            let thrown = thrown.expect_err("a panic");
            assert_eq!(thrown.downcast_ref::<String>(), Some(&format!("chunk {bad}")));
            assert_eq!(ran.load(SeqCst), 8);
        }
    }

    #[test]
    fn a_job_inside_a_chunk_and_one_beside_it_run_on_their_own_threads() {
        let pool = pool(2);
        let count = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        pool.run(4, &|_| {
                            pool.run(3, &|_| {
                                count.fetch_add(1, SeqCst);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(count.load(SeqCst), 3 * 50 * 12);
    }

    #[test]
    fn dropping_a_pool_ends_its_threads() {
        for parked in [false, true] {
            let pool = pool(4);
            let shared = Arc::downgrade(&pool.shared);
            pool.run(4, &|_| {});
            if parked {
                std::thread::sleep(3 * SPIN);
            }
            drop(pool);
            assert!(shared.upgrade().is_none(), "a worker still holds what they share");
        }
    }
}
