//! The pod in another form than `compose.yaml`, for who runs it by other means.

use zeroize::Zeroizing;

use super::{
    SetupSettings, plan,
    planned_file::Change,
    request::{EngineChoice, SetupRequest},
};
use crate::{
    compose::{self, EmitError, Relabel, Secret},
    host::{EngineKind, Error, ErrorKind, Home, PodName, Result},
};

/// Which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Objects for a Kubernetes cluster.
    Kubernetes,
    /// A unit for podman's generator of systemd services.
    Quadlet,
}

/// What came of it.
pub struct Emitted {
    /// The text, which holds secrets.
    pub text: Zeroizing<String>,
    /// What the user should know.
    pub note: String,
}

impl std::fmt::Debug for Emitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Emitted").field("note", &self.note).finish_non_exhaustive()
    }
}

/// Makes the text for the pod as it is, or as [`run`](super::run) would make it, and writes nothing.
///
/// # Errors
/// As [`dry_run`](super::dry_run); also for a pod without a container, and for a text that the form cannot carry.
pub async fn emit(
    home: &Home,
    name: &PodName,
    request: &SetupRequest,
    settings: &SetupSettings,
    form: Form,
) -> Result<Emitted> {
    let mut request = request.clone();
    // no engine of this machine is needed, so none is looked for
    let is_new = !home.pod_dir(name).join(crate::host::Pod::SETTINGS_FILE).exists();
    if matches!(request.engine, Some(EngineChoice::Auto)) || (request.engine.is_none() && is_new) {
        request.engine = Some(EngineChoice::Given(EngineKind::Podman));
    }
    let plan = plan::make(home, name, &request, settings).await?;
    let Some(machine) = plan.settings.machine.as_ref().filter(|_| plan.settings.engine != EngineKind::Local) else {
        let detail = format!("the pod {name} has the local engine, so there is no container to describe");
        return Err(
            Error::new(ErrorKind::Settings, detail).with_hint("add `--engine podman` to see what it would be with one")
        );
    };
    let mut pod = plan::compose_pod(home, name, &plan.settings, machine)?;
    let (text, secrets) = match form {
        Form::Kubernetes => {
            let token = Secret::new(plan.token.expose().to_string());
            (compose::render_kubernetes(&pod, &token), "the agent's token and the guest's password")
        }
        Form::Quadlet => {
            // it is podman that runs it, whatever the pod's own engine is
            pod.relabel = Relabel::Private;
            (compose::render_quadlet(&pod), "the guest's password")
        }
    };
    let text = text.map_err(|error| {
        let hint = match &error {
            EmitError::Colon { .. } => "set PODLINK_HOME to a folder without a colon in its path",
            EmitError::Unprintable { .. } => "choose another text",
            EmitError::Size { .. } => "write a number and M, G or T, such as 4G",
            _ => "this is a bug in podlink: please report it",
        };
        Error::new(ErrorKind::Settings, "the pod cannot be written in that form").with_source(error).with_hint(hint)
    })?;
    let mut note = format!("note: it holds {secrets}: keep it where only you can read it");
    if plan.files.iter().any(|file| file.change != Change::Unchanged) {
        // otherwise nobody keeps the token and the password, and there are no folders
        note.push_str("; the pod's own folder is not so yet: run the same `podlink setup` without --emit first");
    }
    Ok(Emitted { text, note })
}
