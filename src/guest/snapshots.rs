//! Looks at the whole system, one at a time: whoever asks meanwhile shares the next one.
//!
//! A look takes a thread, and a guest in trouble may hold it up. So there is never more than one, and callers wait for it
//! only so long. Nobody is given a look that began before he asked: what he has just started is in it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::body::Bytes;
use serde::Serialize;
use tokio::sync::Mutex;

/// One kind of look.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    /// The last one, kept only while others wait for it. Locked for as long as one is taken.
    latest: Arc<Mutex<Option<Taken>>>,
    /// Callers that are here.
    asking: Arc<AtomicUsize>,
}

#[derive(Debug, Clone)]
struct Taken {
    begun: Instant,
    json: Result<Bytes, Arc<io::Error>>,
}

/// Why there is none.
#[derive(Debug, Clone)]
pub(super) enum NoSnapshot {
    /// The one that is being taken does not end.
    TooLong,
    /// The system does not show it.
    Failed(Arc<io::Error>),
}

impl Snapshots {
    /// What `look` gives, as JSON. It runs on a thread of its own, and to its end also when nobody waits any more.
    pub(super) async fn json<T: Serialize>(
        &self,
        patience: Duration,
        look: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<Bytes, NoSnapshot> {
        let arrived = Instant::now();
        let _here = Here::new(self);
        let json = async {
            let mut latest = Arc::clone(&self.latest).lock_owned().await;
            if let Some(taken) = latest.clone().filter(|taken| taken.begun >= arrived) {
                return taken.json;
            }
            let asking = Arc::clone(&self.asking);
            let taking = tokio::task::spawn_blocking(move || {
                *latest = None;
                let begun = Instant::now();
                let json = look().and_then(|seen| Ok(serde_json::to_vec(&seen)?.into())).map_err(Arc::new);
                if asking.load(Ordering::SeqCst) > 1 {
                    *latest = Some(Taken { begun, json: json.clone() });
                }
                json
            });
            taking.await.unwrap_or_else(|error| Err(Arc::new(io::Error::other(error))))
        };
        tokio::time::timeout(patience, json).await.map_err(|_| NoSnapshot::TooLong)?.map_err(NoSnapshot::Failed)
    }
}

/// A caller's being here; the last one to leave clears up.
struct Here<'a>(&'a Snapshots);

impl<'a> Here<'a> {
    fn new(snapshots: &'a Snapshots) -> Self {
        snapshots.asking.fetch_add(1, Ordering::SeqCst);
        Self(snapshots)
    }
}

impl Drop for Here<'_> {
    fn drop(&mut self) {
        let was_last = self.0.asking.fetch_sub(1, Ordering::SeqCst) == 1;
        // where it is locked a look is being taken, which replaces it
        if was_last && let Ok(mut latest) = self.0.latest.try_lock() {
            *latest = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Looks that count themselves and each wait for word that they may end.
    struct Slow {
        snapshots: Arc<Snapshots>,
        looks: Arc<AtomicUsize>,
        go: mpsc::Sender<()>,
        may_end: Arc<std::sync::Mutex<mpsc::Receiver<()>>>,
    }

    impl Slow {
        fn new() -> Self {
            let (go, may_end) = mpsc::channel();
            Self { snapshots: Arc::default(), looks: Arc::default(), go, may_end: Arc::new(may_end.into()) }
        }

        fn ask(&self, patience: Duration) -> tokio::task::JoinHandle<Result<Bytes, NoSnapshot>> {
            let (snapshots, looks, may_end) = (self.snapshots.clone(), self.looks.clone(), self.may_end.clone());
            tokio::spawn(async move {
                let look = move || {
                    let number = looks.fetch_add(1, Ordering::SeqCst);
                    may_end.lock().unwrap().recv_timeout(PATIENCE).map_err(io::Error::other)?;
                    Ok(number)
                };
                snapshots.json(patience, look).await
            })
        }

        async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
            let deadline = Instant::now() + PATIENCE;
            while !condition(self) {
                assert!(Instant::now() < deadline, "{what}");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }

        fn asking(&self) -> usize {
            self.snapshots.asking.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn who_comes_during_a_look_shares_the_next_one() {
        let slow = Slow::new();
        let first = slow.ask(PATIENCE);
        slow.until("the first look to begin", |slow| slow.looks.load(Ordering::SeqCst) == 1).await;
        let others: Vec<_> = (0..20).map(|_| slow.ask(PATIENCE)).collect();
        slow.until("all to ask", |slow| slow.asking() == 21).await;
        slow.go.send(()).unwrap();
        assert_eq!(first.await.unwrap().unwrap(), "0");
        slow.go.send(()).unwrap();
        for other in others {
            assert_eq!(other.await.unwrap().unwrap(), "1");
        }
        assert_eq!(slow.looks.load(Ordering::SeqCst), 2);
        assert!(slow.snapshots.latest.lock().await.is_none(), "nothing is kept that nobody waits for");
        slow.go.send(()).unwrap();
        assert_eq!(slow.ask(PATIENCE).await.unwrap().unwrap(), "2");
        assert!(slow.snapshots.latest.lock().await.is_none());
    }

    #[tokio::test]
    async fn a_look_that_hangs_is_the_only_one_and_holds_up_nobody_for_long() {
        let slow = Slow::new();
        for _ in 0..3 {
            let asked = slow.ask(Duration::from_millis(30)).await.unwrap();
            assert!(matches!(asked, Err(NoSnapshot::TooLong)), "{asked:?}");
        }
        assert_eq!((slow.looks.load(Ordering::SeqCst), slow.asking()), (1, 0));
        slow.go.send(()).unwrap();
        slow.go.send(()).unwrap();
        assert_eq!(slow.ask(PATIENCE).await.unwrap().unwrap(), "1");
    }

    #[tokio::test]
    async fn a_look_that_fails_or_panics_is_an_error_and_not_the_end() {
        let snapshots = Snapshots::default();
        let failed = snapshots.json(PATIENCE, || Err::<u8, _>(io::ErrorKind::NotFound.into())).await;
        assert!(matches!(failed, Err(NoSnapshot::Failed(error)) if error.kind() == io::ErrorKind::NotFound));
        let panicked = snapshots.json(PATIENCE, || -> io::Result<u8> { panic!("on purpose") }).await;
        assert!(matches!(panicked, Err(NoSnapshot::Failed(_))));
        assert_eq!(snapshots.json(PATIENCE, || Ok(7)).await.unwrap(), "7");
    }
}
