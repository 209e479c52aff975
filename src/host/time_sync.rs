//! The guest's clock held against this host's, and put right where it is off.
//!
//! A guest that was paused, or whose host slept, wakes with the clock of the moment at which it stopped; Windows besides
//! takes the machine's clock for local time. Certificates and tokens then are not valid yet, or no longer.
//!
//! Implementation note: as NTP does it, several round trips are made and the shortest counts. The guest read its clock
//! somewhere between the request and the answer, so half of the round trip is also how wrong the result can be. The step is
//! made by an offset rather than to a time: how long the request is on its way does not matter then.

use std::{
    convert::Infallible,
    time::{Duration, Instant},
};

use serde::Serialize;

use super::{AgentClient, AgentKind, ClientSettings, EngineKind, Error, ErrorKind, Pod, Result, Seen};
use crate::protocol::{GuestTime, SetTime};

/// How often a clock is to be looked at by whoever follows a pod for long.
pub const EVERY: Duration = Duration::from_mins(5);

/// Steps in one go: the first mends it, a second what happened to the clock meanwhile.
const MOST_STEPS: u32 = 3;

/// For a guest to show that it is ready, where a command runs that need not wait for it.
const LOOK: Duration = Duration::from_millis(500);

/// How a clock is measured and when it is stepped.
#[derive(Debug, Clone)]
pub struct SyncSettings {
    /// Round trips of one measurement.
    pub rounds: u32,
    /// Once a round trip was this short, no further ones are made.
    pub good_enough: Duration,
    /// How far the clocks may differ without a step. A guest that keeps its own time by the network is within this.
    pub tolerance: Duration,
    /// For all of it.
    pub deadline: Duration,
    /// Whether to step at all.
    pub step: bool,
}

impl SyncSettings {
    /// What the command line uses.
    pub const DEFAULT: Self = Self {
        rounds: 8,
        good_enough: Duration::from_micros(500),
        tolerance: Duration::from_millis(500),
        deadline: Duration::from_secs(10),
        step: true,
    };

    /// For what runs along with another command and must not hold it up.
    pub const ALONG: Self = Self { rounds: 4, deadline: Duration::from_secs(2), ..Self::DEFAULT };
}

/// By how much the guest's clock is ahead of this host's, as far as it can be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measurement {
    /// Nanoseconds; behind where negative.
    pub offset_ns: i64,
    /// By how many nanoseconds that may be wrong.
    pub error_ns: i64,
    /// When it was measured.
    pub at: Instant,
}

impl Measurement {
    /// By how many nanoseconds it is surely off, whatever the error: 0 where it may be right.
    pub fn surely_ns(&self) -> i64 {
        let sure = self.offset_ns.saturating_abs().saturating_sub(self.error_ns).max(0);
        sure.saturating_mul(self.offset_ns.signum())
    }

    /// Of a clock that read `guest` somewhere between two readings of this host's, which are `passed` apart.
    fn of(guest: i64, sent: i64, passed: Duration, at: Instant) -> Self {
        let half = i64::try_from(passed.as_nanos() / 2).unwrap_or(i64::MAX);
        // what the halving cut off is within one more
        Self { offset_ns: guest.saturating_sub(sent).saturating_sub(half), error_ns: half.saturating_add(1), at }
    }
}

/// What came of a synchronisation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SyncReport {
    /// By how many milliseconds the guest's clock was ahead; behind where negative.
    pub offset_ms: f64,
    /// By how much that may be wrong.
    pub error_ms: f64,
    /// What is left of it, after the steps.
    pub left_ms: f64,
    /// By how many milliseconds the clock was stepped; null where it was not.
    pub stepped_ms: Option<f64>,
    /// Whether the clock is within the tolerance now.
    pub in_tolerance: bool,
    /// By how many millionths of the time that passed since the look before it runs too fast, slow where negative; null
    /// for the first look.
    pub drift_ppm: Option<f64>,
    /// Whether the guest keeps its clock by the network, as far as it knows.
    pub ntp_synchronized: Option<bool>,
}

/// A clock that can be read and stepped: the guest's, or what a test has in its place.
trait Clock {
    /// One round trip: what it reads.
    async fn read(&self) -> Result<GuestTime>;
    /// Puts it forward by so many nanoseconds.
    async fn step(&self, offset_ns: i64) -> Result<()>;
    /// This host's time, in nanoseconds since 1970.
    fn host(&self) -> i64;
}

impl Clock for AgentClient {
    async fn read(&self) -> Result<GuestTime> {
        self.system_time().await
    }

    async fn step(&self, offset_ns: i64) -> Result<()> {
        let request = SetTime { offset_ns: Some(offset_ns), ..SetTime::default() };
        self.set_system_time(&request).await.map(drop)
    }

    fn host(&self) -> i64 {
        i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
    }
}

/// Measures by how much the guest's clock is ahead.
///
/// # Errors
/// As [`AgentClient::whoami`]; and where the deadline passes before one round trip is made.
pub async fn measure(client: &AgentClient, settings: &SyncSettings) -> Result<Measurement> {
    in_time(settings, measured(client, settings)).await.map(|(measurement, _)| measurement)
}

/// Measures the guest's clock and, where it is off by more than the tolerance, steps it.
///
/// # Errors
/// As [`measure`]; and where the agent may not set the clock.
pub async fn sync(client: &AgentClient, settings: &SyncSettings) -> Result<SyncReport> {
    in_time(settings, synced(client, settings)).await.map(|(report, _)| report)
}

/// Puts a pod's clock right beside another command, where its guest is ready: by how many milliseconds it was stepped.
///
/// Bounded, and never a failure: a guest that is not ready, an agent that may not or cannot, a clock that is right, and the
/// local engine, whose clock is this host's, all come to `None`.
pub async fn sync_along(pod: &Pod) -> Option<f64> {
    if pod.settings().engine == EngineKind::Local || pod.settings().agent != AgentKind::Podlink {
        return None;
    }
    let settings = ClientSettings { health_deadline: LOOK, ..ClientSettings::DEFAULT };
    let client = AgentClient::for_pod(pod, settings).ok()?;
    if !matches!(client.health().await, Ok(Seen::Ready(_))) {
        return None;
    }
    match sync(&client, &SyncSettings::ALONG).await {
        Ok(report) => report.stepped_ms,
        Err(error) => {
            tracing::debug!(%error, "the guest's clock was not looked at");
            None
        }
    }
}

/// Keeps a pod's clock right for as long as this is polled: a look now, and one [`EVERY`] so often; `stepped` is told by how
/// many milliseconds it was stepped, and how it drifts where that is known.
///
/// Whatever stands in the way is no failure, as with [`sync_along`]: the next look may be better.
pub async fn keep_along(pod: &Pod, every: Duration, mut stepped: impl FnMut(f64, Option<f64>)) -> Infallible {
    let theirs = pod.settings().engine != EngineKind::Local && pod.settings().agent == AgentKind::Podlink;
    let client = if theirs { AgentClient::for_pod(pod, ClientSettings::DEFAULT).ok() } else { None };
    let Some(client) = client else { return std::future::pending().await };
    let mut keeper = TimeKeeper::new(client, SyncSettings::ALONG);
    loop {
        match keeper.look().await {
            Ok(SyncReport { stepped_ms: Some(by), drift_ppm, .. }) => stepped(by, drift_ppm),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the guest's clock was not looked at"),
        }
        tokio::time::sleep(every).await;
    }
}

/// Looks at a clock again and again, for whoever follows a pod: the time between two looks shows how it drifts.
#[derive(Debug)]
pub struct TimeKeeper {
    client: AgentClient,
    settings: SyncSettings,
    before: Option<Measurement>,
}

impl TimeKeeper {
    /// One that has not looked yet.
    pub const fn new(client: AgentClient, settings: SyncSettings) -> Self {
        Self { client, settings, before: None }
    }

    /// A look, and a step where one is due; to be made [`EVERY`] so often.
    ///
    /// # Errors
    /// As [`sync`]; the next look may be made all the same.
    pub async fn look(&mut self) -> Result<SyncReport> {
        let (mut report, (first, last)) = in_time(&self.settings, synced(&self.client, &self.settings)).await?;
        report.drift_ppm = self.before.and_then(|before| drift_ppm(&before, &first));
        self.before = Some(last);
        Ok(report)
    }
}

/// How fast the offset changed between two looks; `None` where it changed by less than can be known.
fn drift_ppm(before: &Measurement, now: &Measurement) -> Option<f64> {
    let passed = now.at.checked_duration_since(before.at)?.as_nanos();
    let changed = now.offset_ns.saturating_sub(before.offset_ns);
    if passed == 0 || changed.saturating_abs() <= now.error_ns.saturating_add(before.error_ns) {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate for the eye")]
    Some(changed as f64 * 1e6 / passed as f64)
}

async fn in_time<T>(settings: &SyncSettings, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(settings.deadline, work).await.unwrap_or_else(|_| {
        let detail = format!("the guest's clock was not told within {:.1} s", settings.deadline.as_secs_f64());
        Err(Error::new(ErrorKind::Silent, detail))
    })
}

/// The best of several round trips, and what the guest knows of its clock.
async fn measured(clock: &impl Clock, settings: &SyncSettings) -> Result<(Measurement, GuestTime)> {
    let mut best: Option<(Measurement, GuestTime)> = None;
    for _ in 0..settings.rounds.max(1) {
        let (begun, sent) = (Instant::now(), clock.host());
        let read = match (clock.read().await, &best) {
            (Ok(read), _) => read,
            // what is known already is as good
            (Err(_), Some(_)) => break,
            (Err(error), None) => return Err(error),
        };
        // a host that slept meanwhile, or whose clock was set, knows by the difference that it knows little
        let by_clock = u64::try_from(clock.host().saturating_sub(sent)).unwrap_or(0);
        let passed = begun.elapsed().max(Duration::from_nanos(by_clock));
        let measurement = Measurement::of(read.unix_ns, sent, passed, begun);
        if best.as_ref().is_none_or(|(best, _)| measurement.error_ns < best.error_ns) {
            best = Some((measurement, read));
        }
        if passed <= settings.good_enough {
            break;
        }
    }
    best.ok_or_else(|| Error::new(ErrorKind::Internal, "no round trip was made"))
}

/// The report, and the first and the last measurement.
async fn synced(clock: &impl Clock, settings: &SyncSettings) -> Result<(SyncReport, (Measurement, Measurement))> {
    let tolerance = i64::try_from(settings.tolerance.as_nanos()).unwrap_or(i64::MAX);
    let is_off = |measurement: &Measurement| measurement.surely_ns().abs() > tolerance;
    let (first, read) = measured(clock, settings).await?;
    let (mut last, mut stepped, mut steps) = (first, 0_i64, 0);
    while settings.step && is_off(&last) && steps < MOST_STEPS {
        clock.step(last.offset_ns.saturating_neg()).await?;
        stepped = stepped.saturating_sub(last.offset_ns);
        steps += 1;
        last = measured(clock, settings).await?.0;
    }
    let report = SyncReport {
        offset_ms: milliseconds(first.offset_ns),
        error_ms: milliseconds(first.error_ns),
        left_ms: milliseconds(last.offset_ns),
        stepped_ms: (steps > 0).then(|| milliseconds(stepped)),
        in_tolerance: !is_off(&last),
        drift_ppm: None,
        ntp_synchronized: read.ntp_synchronized,
    };
    Ok((report, (first, last)))
}

/// To the microsecond: what is beyond is noise.
fn milliseconds(nanoseconds: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "microseconds of centuries fit")]
    let micros = (nanoseconds / 1000) as f64;
    micros / 1000.0
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::VecDeque};

    use super::*;

    const MS: i64 = 1_000_000;
    const TRUTH: i64 = 1_795_975_286_000_000_000;

    /// A clock that is off, behind a line whose ways there and back take the given milliseconds in turn.
    struct Fake {
        begun: tokio::time::Instant,
        offset: RefCell<i64>,
        delays: RefCell<VecDeque<(u64, u64)>>,
        steps: RefCell<Vec<i64>>,
        may_step: bool,
        reads: RefCell<usize>,
    }

    impl Fake {
        fn new(offset: i64, delays: &[(u64, u64)]) -> Self {
            Self {
                begun: tokio::time::Instant::now(),
                offset: RefCell::new(offset),
                delays: RefCell::new(delays.iter().copied().collect()),
                steps: RefCell::default(),
                may_step: true,
                reads: RefCell::new(0),
            }
        }

        fn guest(&self) -> GuestTime {
            let unix_ns = self.host() + *self.offset.borrow();
            serde_json::from_value(serde_json::json!({
                "unix_ns": unix_ns, "utc": "", "monotonic_ns": 0, "boot_ns": 0, "timezone": {}, "ntp_synchronized": false
            }))
            .unwrap()
        }
    }

    impl Clock for Fake {
        async fn read(&self) -> Result<GuestTime> {
            let (there, back) = self.delays.borrow_mut().pop_front().unwrap_or((1, 1));
            *self.reads.borrow_mut() += 1;
            // real time: this host's clock that never jumps is the real one
            std::thread::sleep(Duration::from_millis(there));
            let read = self.guest();
            std::thread::sleep(Duration::from_millis(back));
            Ok(read)
        }

        async fn step(&self, offset_ns: i64) -> Result<()> {
            if !self.may_step {
                return Err(Error::new(ErrorKind::Rejected, "no"));
            }
            *self.offset.borrow_mut() += offset_ns;
            self.steps.borrow_mut().push(offset_ns);
            Ok(())
        }

        fn host(&self) -> i64 {
            TRUTH + i64::try_from(self.begun.elapsed().as_nanos()).unwrap()
        }
    }

    fn settings() -> SyncSettings {
        SyncSettings { good_enough: Duration::ZERO, ..SyncSettings::DEFAULT }
    }

    #[test]
    fn an_offset_lies_within_its_error_wherever_the_guest_read_its_clock() {
        let at = Instant::now();
        for truth in [0, 7_200_000 * MS, -7_200_000 * MS, 3, -3] {
            for passed in [0_i64, 1, 2, 3, 80 * MS] {
                for there in [0, passed / 3, passed / 2, passed] {
                    let guest = TRUTH + there + truth;
                    let passed = Duration::from_nanos(passed.unsigned_abs());
                    let measured = Measurement::of(guest, TRUTH, passed, at);
                    assert!((measured.offset_ns - truth).abs() <= measured.error_ns, "{truth} {passed:?} {measured:?}");
                    assert!(measured.surely_ns().abs() <= truth.abs(), "{truth} {measured:?}");
                }
            }
        }
        let extreme = Measurement::of(i64::MIN, TRUTH, Duration::MAX, at);
        assert_eq!(extreme.surely_ns(), 0, "nothing is known after so long: {extreme:?}");
    }

    #[tokio::test]
    async fn the_shortest_round_trip_counts() {
        let fake = Fake::new(500 * MS, &[(0, 120), (90, 0), (1, 1), (0, 60)]);
        let (measured, _) = measured(&fake, &SyncSettings { rounds: 4, ..settings() }).await.unwrap();
        assert_eq!(*fake.reads.borrow(), 4);
        assert!(measured.error_ns < 29 * MS, "{measured:?}");
        assert!((measured.offset_ns - 500 * MS).abs() <= measured.error_ns, "{measured:?}");
    }

    #[tokio::test]
    async fn a_clock_that_is_off_is_stepped_once_and_a_good_one_is_left_alone() {
        for offset in [7_200_000 * MS, -7_200_000 * MS, 800 * MS] {
            let fake = Fake::new(offset, &[(0, 30), (20, 0)]);
            let (report, (_, last)) = synced(&fake, &settings()).await.unwrap();
            assert!(report.in_tolerance && fake.steps.borrow().len() == 1, "{report:?}");
            assert!(fake.offset.borrow().abs() < 29 * MS, "{}", fake.offset.borrow());
            assert!((last.offset_ns - *fake.offset.borrow()).abs() <= last.error_ns);
            assert!((report.stepped_ms.unwrap() + report.offset_ms).abs() < 0.01, "{report:?}");
        }
        let fake = Fake::new(400 * MS, &[]);
        let (report, _) = synced(&fake, &settings()).await.unwrap();
        assert!(report.in_tolerance && report.stepped_ms.is_none() && fake.steps.borrow().is_empty(), "{report:?}");
        // off by more than the tolerance only if the error is not counted: nothing is known
        let slow = Fake::new(510 * MS, &[(60, 60); 8]);
        assert_eq!(synced(&slow, &settings()).await.unwrap().0.stepped_ms, None);
    }

    #[tokio::test]
    async fn a_check_steps_nothing_and_a_refusal_is_an_error() {
        let fake = Fake::new(7_200_000 * MS, &[]);
        let (report, _) = synced(&fake, &SyncSettings { step: false, ..settings() }).await.unwrap();
        assert!(!report.in_tolerance && report.stepped_ms.is_none() && fake.steps.borrow().is_empty(), "{report:?}");
        assert!((report.left_ms - 7_200_000.0).abs() < 50.0, "{report:?}");
        let fake = Fake { may_step: false, ..Fake::new(7_200_000 * MS, &[]) };
        assert_eq!(synced(&fake, &settings()).await.unwrap_err().kind(), ErrorKind::Rejected);
    }

    #[test]
    fn drift_is_told_where_it_can_be_known() {
        let at = Instant::now();
        let of = |offset_ns, after: u64| Measurement { offset_ns, error_ns: MS, at: at + Duration::from_secs(after) };
        let drift = drift_ppm(&of(0, 0), &of(30 * MS, 300)).unwrap();
        assert!((drift - 100.0).abs() < 1e-6, "{drift}");
        assert!(drift_ppm(&of(30 * MS, 0), &of(0, 300)).unwrap() < 0.0);
        assert_eq!(drift_ppm(&of(0, 0), &of(2 * MS, 300)), None, "within what the measurements can tell");
        assert_eq!(drift_ppm(&of(0, 0), &of(30 * MS, 0)), None);
    }
}
