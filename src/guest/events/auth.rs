//! Requests without the right token: told at once, and then at intervals with their number.
//!
//! Implementation note: who has no token can make as many of them as it likes. What is told of them is bounded, and so
//! is what is remembered, so that it can neither push other events out of the ring nor fill the memory.

use std::{
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::ring::now;
use crate::protocol::AuthFailedEvent;

/// Peers that are told apart at one time; beyond them all are one.
const MOST_PEERS: usize = 16;

/// What is known of the failures of late.
#[derive(Debug)]
pub(super) struct AuthFailures {
    interval: Duration,
    peers: Mutex<Vec<Peer>>,
    /// Something was held back.
    held_back: Notify,
}

#[derive(Debug)]
struct Peer {
    /// None stands for all that there was no room for.
    address: Option<IpAddr>,
    /// Failures that have not been told.
    held_back: u64,
    path: String,
    /// When the last event was.
    told: Instant,
}

impl Peer {
    fn event(&mut self, now_is: Instant) -> AuthFailedEvent {
        self.told = now_is;
        AuthFailedEvent {
            ts: now(),
            peer: self.address.map_or_else(|| "others".to_owned(), |address| address.to_canonical().to_string()),
            path: self.path.clone(),
            count: std::mem::take(&mut self.held_back),
        }
    }
}

impl AuthFailures {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, peers: Mutex::default(), held_back: Notify::new() }
    }

    /// Counts one; the event, where it is to be told now.
    pub(super) fn failed(&self, address: Option<IpAddr>, path: String) -> Option<AuthFailedEvent> {
        let now_is = Instant::now();
        let mut peers = self.peers();
        peers.retain(|peer| peer.held_back > 0 || now_is.duration_since(peer.told) < self.interval);
        let known = |peers: &[Peer], address| peers.iter().position(|peer| peer.address == address);
        let address = if known(&peers, address).is_some() || peers.len() < MOST_PEERS { address } else { None };
        let Some(at) = known(&peers, address) else {
            let mut peer = Peer { address, held_back: 1, path, told: now_is };
            let event = peer.event(now_is);
            peers.push(peer);
            return Some(event);
        };
        peers[at].held_back += 1;
        peers[at].path = path;
        drop(peers);
        self.held_back.notify_one();
        None
    }

    /// Waits until something that was held back is to be told.
    pub(super) async fn due(&self) -> Vec<AuthFailedEvent> {
        loop {
            let next = self.peers().iter().filter(|peer| peer.held_back > 0).map(|peer| peer.told).min();
            let Some(told) = next else {
                self.held_back.notified().await;
                continue;
            };
            sleep_until(told + self.interval).await;
            let now_is = Instant::now();
            let mut peers = self.peers();
            let due = peers.iter_mut().filter(|peer| peer.held_back > 0 && now_is >= peer.told + self.interval);
            let events: Vec<_> = due.map(|peer| peer.event(now_is)).collect();
            if !events.is_empty() {
                return events;
            }
        }
    }

    fn peers(&self) -> MutexGuard<'_, Vec<Peer>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn peer(number: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, number).into()
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_is_told_at_once_and_the_rest_as_a_number() {
        let failures = AuthFailures::new(Duration::from_secs(5));
        assert_eq!(failures.failed(Some(peer(1)), "/a".into()).unwrap().count, 1);
        for _ in 0..1000 {
            assert_eq!(failures.failed(Some(peer(1)), "/b".into()), None);
        }
        assert_eq!(failures.failed(Some(peer(2)), "/a".into()).unwrap().peer, "10.0.0.2");
        let begun = Instant::now();
        let due = failures.due().await;
        assert_eq!(begun.elapsed().as_secs(), 5);
        assert_eq!((due.len(), due[0].count, &*due[0].path, &*due[0].peer), (1, 1000, "/b", "10.0.0.1"));
        let nothing = tokio::time::timeout(Duration::from_mins(1), failures.due()).await;
        nothing.unwrap_err();
        assert_eq!(
            failures.failed(Some(peer(1)), "/a".into()).unwrap().count,
            1,
            "after a quiet while it is new again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn many_peers_are_one() {
        let failures = AuthFailures::new(Duration::from_secs(5));
        let told = (0..200).filter_map(|number| failures.failed(Some(peer(number)), "/".into())).count();
        assert_eq!(told, MOST_PEERS + 1, "one each, and one for the others");
        let due = failures.due().await;
        assert_eq!((due.len(), &*due[0].peer, due[0].count), (1, "others", 200 - told as u64));
    }
}
