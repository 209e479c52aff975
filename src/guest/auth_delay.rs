//! Wrong tokens are answered more and more slowly; the right one never is.
//!
//! All callers of a guest may come from one address, the forwarder's. So nobody is locked out: the token is looked at
//! before anything is delayed, and only the answer "wrong" waits.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;

/// How wrong tokens are slowed.
#[derive(Debug, Clone, Copy)]
pub struct AuthDelays {
    /// So many of one peer within the window are answered at once.
    pub free: u32,
    /// A peer that has been quiet for as long begins anew.
    pub window: Duration,
    /// The first delay; each further one is twice the last.
    pub first: Duration,
    /// The longest.
    pub longest: Duration,
    /// Answers that are delayed at one time; those beyond go out at once and close their connection.
    pub places: usize,
    /// Peers that are remembered; the one that was quiet for longest goes first.
    pub peers: usize,
}

impl AuthDelays {
    /// From the fifth within a minute: 100 ms, doubling up to 5 s.
    pub const DEFAULT: Self = Self {
        free: 4,
        window: Duration::from_mins(1),
        first: Duration::from_millis(100),
        longest: Duration::from_secs(5),
        places: 64,
        peers: 1024,
    };

    /// Before the answer to the `count`th failure.
    fn of(&self, count: u32) -> Duration {
        let Some(doublings) = count.checked_sub(self.free + 1) else { return Duration::ZERO };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

/// The failures of all peers.
#[derive(Debug)]
pub(super) struct AuthDelay {
    settings: AuthDelays,
    peers: Mutex<HashMap<IpAddr, Failures>>,
    places: Semaphore,
}

#[derive(Debug)]
struct Failures {
    count: u32,
    last: Instant,
}

impl AuthDelay {
    pub(super) fn new(settings: AuthDelays) -> Arc<Self> {
        Arc::new(Self { settings, peers: Mutex::default(), places: Semaphore::new(settings.places) })
    }

    /// A wrong token came from this peer: waits until it may be told so, or until `stopping`. `false` where too many
    /// wait already: it is told at once, and its connection is to end.
    pub(super) async fn failed(&self, peer: IpAddr, stopping: impl Future<Output = ()>) -> bool {
        let peer = network_of(peer);
        let delay = self.settings.of(self.count(peer));
        if delay.is_zero() {
            return true;
        }
        let Ok(_place) = self.places.try_acquire() else { return false };
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = stopping => {}
        }
        true
    }

    /// Counts one more.
    fn count(&self, peer: IpAddr) -> u32 {
        let now = Instant::now();
        let mut peers = self.peers();
        if !peers.contains_key(&peer) && peers.len() >= self.settings.peers {
            let oldest = peers.iter().min_by_key(|(_, failures)| failures.last).map(|(peer, _)| *peer);
            oldest.map(|oldest| peers.remove(&oldest));
        }
        let failures = peers.entry(peer).or_insert(Failures { count: 0, last: now });
        if now.duration_since(failures.last) > self.settings.window {
            failures.count = 0;
        }
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
        failures.count
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<IpAddr, Failures>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever has one address of IPv6 has the rest of its network too.
fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    fn peer(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn delays_double_up_to_the_longest() {
        let ms = |count| AuthDelays::DEFAULT.of(count).as_millis();
        assert_eq!([1, 4, 5, 6, 7, 10, 11, 12, 4000].map(ms), [0, 0, 100, 200, 400, 3200, 5000, 5000, 5000]);
        assert_eq!(AuthDelays { first: Duration::ZERO, ..AuthDelays::DEFAULT }.of(50), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn each_peer_waits_for_itself_and_only_so_many_wait() {
        let delay = AuthDelay::new(AuthDelays { places: 1, ..AuthDelays::DEFAULT });
        let begun = tokio::time::Instant::now();
        for _ in 0..6 {
            assert!(delay.failed(peer(1), pending()).await);
        }
        assert_eq!(begun.elapsed().as_millis(), 300);
        assert!(delay.failed(peer(2), pending()).await);
        assert_eq!(begun.elapsed().as_millis(), 300);
        let waiting = tokio::spawn({
            let delay = Arc::clone(&delay);
            async move { delay.failed(peer(1), pending()).await }
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(!delay.failed(peer(1), pending()).await, "told at once, and to go");
        assert!(waiting.await.unwrap());
        let before = tokio::time::Instant::now();
        assert!(delay.failed(peer(1), async {}).await);
        assert_eq!(before.elapsed(), Duration::ZERO, "an agent that stops waits for nobody");
    }

    #[tokio::test]
    async fn what_is_remembered_is_bounded() {
        let delay = AuthDelay::new(AuthDelays { peers: 8, ..AuthDelays::DEFAULT });
        for number in 0..1000 {
            assert_eq!(delay.count(peer(number)), 1);
            assert!(delay.peers().len() <= 8);
        }
        assert_eq!(delay.count(peer(999)), 2, "the newest are known");
        let two = ["fd00::1:2:3:4", "fd00::9:9:9:9"].map(|text| network_of(text.parse().unwrap()));
        assert_eq!(two[0], two[1]);
        assert_eq!(network_of("::ffff:10.0.0.7".parse().unwrap()), "10.0.0.7".parse::<IpAddr>().unwrap());
        assert_eq!(network_of("::1".parse().unwrap()), "::1".parse::<IpAddr>().unwrap());
    }
}
