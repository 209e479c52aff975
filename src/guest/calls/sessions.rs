//! Sessions: calls that run one after the other, in the order in which they came.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use super::{call::Call, no_turn::NoTurn};

/// All sessions in which something runs or waits.
#[derive(Debug)]
pub(super) struct Sessions {
    lines: Mutex<BTreeMap<String, VecDeque<Member>>>,
    /// Calls that may stand in all lines together.
    most: usize,
    longest_wait: Duration,
}

#[derive(Debug)]
struct Member {
    call: Arc<Call>,
    turn: Arc<Notify>,
}

impl Sessions {
    /// At most so many calls in all, each of which waits at most so long.
    pub(super) fn new(most: usize, longest_wait: Duration) -> Arc<Self> {
        Arc::new(Self { lines: Mutex::default(), most, longest_wait })
    }

    /// Takes the last place in the line of the call's session.
    pub(super) fn enter(self: &Arc<Self>, name: &str, call: &Arc<Call>, may_wait: bool) -> Result<Place, NoTurn> {
        let mut lines = self.lines();
        if lines.values().map(VecDeque::len).sum::<usize>() >= self.most {
            return Err(NoTurn::Full);
        }
        let turn = Arc::new(Notify::new());
        if lines.contains_key(name) && !may_wait {
            return Err(NoTurn::Busy);
        }
        let line = lines.entry(name.to_owned()).or_default();
        if line.is_empty() {
            turn.notify_one();
        }
        line.push_back(Member { call: Arc::clone(call), turn: Arc::clone(&turn) });
        Ok(Place { sessions: Arc::clone(self), name: name.to_owned(), turn })
    }

    /// The calls of each session, the one whose turn it is first.
    pub(super) fn all(&self) -> Vec<(String, Vec<Arc<Call>>)> {
        let calls = |line: &VecDeque<Member>| line.iter().map(|member| Arc::clone(&member.call)).collect();
        self.lines().iter().map(|(name, line)| (name.clone(), calls(line))).collect()
    }

    /// The calls of one session.
    pub(super) fn of(&self, name: &str) -> Vec<Arc<Call>> {
        self.lines()
            .get(name)
            .map_or_else(Vec::new, |line| line.iter().map(|member| Arc::clone(&member.call)).collect())
    }

    fn lines(&self) -> MutexGuard<'_, BTreeMap<String, VecDeque<Member>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in a session's line; dropped, it is given up.
#[derive(Debug)]
pub(super) struct Place {
    sessions: Arc<Sessions>,
    name: String,
    turn: Arc<Notify>,
}

impl Place {
    /// Waits for the turn.
    pub(super) async fn turn(&self) -> Result<(), NoTurn> {
        tokio::time::timeout(self.sessions.longest_wait, self.turn.notified()).await.map_err(|_| NoTurn::WaitedTooLong)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.sessions.lines();
        let Some(line) = lines.get_mut(&self.name) else { return };
        let was_first = line.front().is_some_and(|first| Arc::ptr_eq(&first.turn, &self.turn));
        line.retain(|member| !Arc::ptr_eq(&member.turn, &self.turn));
        match line.front() {
            Some(next) if was_first => next.turn.notify_one(),
            Some(_) => {}
            None => drop(lines.remove(&self.name)),
        }
    }
}
