//! All pods below the home.

use serde::Serialize;

use super::{ClientSettings, EngineKind, ErrorKind, Home, Pod, PodState, Result, status};

/// Pods that are looked at at the same time.
const AT_ONCE: usize = 8;

/// One pod in the list.
#[derive(Debug, Clone, Serialize)]
pub struct ListedPod {
    /// Its name.
    pub name: String,
    /// What runs it; `None` where its settings do not read.
    pub engine: Option<EngineKind>,
    /// How it is.
    pub state: PodState,
    /// Whether calls are served.
    pub ready: bool,
    /// The agent's port on the host.
    pub port: Option<u16>,
    /// Why nothing more can be told of it, where that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Looks at every pod, by name; one that is broken is listed with what is wrong.
///
/// # Errors
/// None of a single pod's.
pub async fn list(home: &Home, settings: &ClientSettings) -> Result<Vec<ListedPod>> {
    let mut listed = Vec::new();
    let mut looks = tokio::task::JoinSet::new();
    for name in home.pods() {
        match Pod::load(home, &name) {
            Ok(pod) => {
                if looks.len() >= AT_ONCE
                    && let Some(Ok(done)) = looks.join_next().await
                {
                    listed.push(done);
                }
                looks.spawn(look(pod, settings.clone()));
            }
            // a folder that is no pod
            Err(error) if error.kind() == ErrorKind::NoPod => {}
            Err(error) => listed.push(ListedPod {
                name: name.to_string(),
                engine: None,
                state: PodState::Unknown,
                ready: false,
                port: None,
                error: Some(error.to_string()),
            }),
        }
    }
    listed.extend(looks.join_all().await);
    listed.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(listed)
}

async fn look(pod: Pod, settings: ClientSettings) -> ListedPod {
    let seen = status(&pod, settings).await;
    let (state, ready, error) = match seen {
        Ok(status) => (status.state, status.ready, status.engine_error),
        Err(error) => (PodState::Unknown, false, Some(format!("{:#}", anyhow::Error::from(error)))),
    };
    let settings = pod.settings();
    ListedPod {
        name: pod.name().to_string(),
        engine: Some(settings.engine),
        state,
        ready,
        port: Some(settings.ports.agent),
        error,
    }
}
