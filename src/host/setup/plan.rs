//! Everything that a setup will write, in memory and checked, before anything is written.

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::{
    SetupSettings,
    diff::{self, Secrets},
    guest_exe::GuestExe,
    machine_check::{self, Facts},
    planned_file::{Change, Content, PlannedFile, read_bytes},
    request::SetupRequest,
    resolve, staging,
};
use crate::{
    compose::{self, ComposePod, HostPorts, Relabel},
    host::{
        AgentKind, EngineKind, Error, ErrorKind, GuestOs, Home, Machine, Pod, PodName, PodSettings, Result, is_new_disk,
    },
    token::{self, Owners, STAGED_NAME, TOKEN_FILE, Token, TokenError},
};

/// What is decided.
#[derive(Debug)]
pub struct Plan {
    /// The pod's name.
    pub name: PodName,
    /// Its folder.
    pub dir: PathBuf,
    /// Its settings.
    pub settings: PodSettings,
    /// What becomes of the token.
    pub token_fate: TokenFate,
    /// The agent that is staged for the guest; `None` for a guest that gets none from us.
    pub guest_exe: Option<GuestExe>,
    /// Folders that are made where they are missing.
    pub folders: Vec<PathBuf>,
    /// The files in the order in which they are written.
    pub files: Vec<PlannedFile>,
    /// What the user should know.
    pub notes: Vec<String>,
    /// What the user must know.
    pub warnings: Vec<String>,
    /// The staged copy of the token.
    pub(super) token: Token,
    pub(super) oem: PathBuf,
}

/// What becomes of the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenFate {
    /// It stays.
    Kept,
    /// The pod is new and gets its first.
    Created,
    /// It was lost and is taken from the copy staged for the guest.
    Restored,
    /// It was lost with its copy; a new one is made, which an installed guest does not know.
    Replaced,
}

impl TokenFate {
    /// As it stands in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Created => "created",
            Self::Restored => "restored",
            Self::Replaced => "replaced",
        }
    }
}

/// Decides everything.
pub(super) async fn make(
    home: &Home,
    name: &PodName,
    request: &SetupRequest,
    settings: &SetupSettings,
) -> Result<Plan> {
    let dir = home.pod_dir(name);
    // a settings file that is a link, foreign or open to others is dealt with before it is believed
    drop(read(&dir.join(Pod::SETTINGS_FILE))?);
    let earlier = match Pod::load(home, name) {
        Ok(pod) => Some(pod),
        Err(error) if error.kind() == ErrorKind::NoPod => None,
        Err(error) => return Err(error),
    };
    let (pod, runs) = resolve::resolve(home, name, request, earlier.as_ref(), settings).await?;
    let oem = dir.join(Pod::OEM_DIR);
    let (token, token_fate) = token_for(&dir, &oem, earlier.is_some())?;

    let mut secrets = Secrets(vec![token.expose()]);
    let machines = [pod.machine.as_ref(), earlier.as_ref().and_then(|pod| pod.settings().machine.as_ref())];
    secrets
        .0
        .extend(machines.into_iter().flatten().map(|machine| Zeroizing::new(machine.password.expose().to_owned())));

    let mut folders = vec![dir.clone(), oem.clone()];
    let token_line = || {
        let mut line = token.expose();
        line.push('\n');
        line
    };
    let file = |path: PathBuf, content: Zeroizing<String>| plan_file(path, content, &secrets);
    let mut files = vec![
        file(dir.join(".gitignore"), Zeroizing::new("*\n".to_owned()))?,
        file(dir.join(TOKEN_FILE), token_line())?,
        file(oem.join(STAGED_NAME), token_line())?,
    ];
    if let Some(machine) = pod.machine.as_ref().filter(|_| pod.engine != EngineKind::Local) {
        let (share, storage) = (dir.join(Pod::SHARE_DIR), home.storage_dir(name));
        let text = compose_yaml(&compose_pod(home, name, &pod, machine)?)?;
        files.push(file(dir.join(Pod::COMPOSE_FILE), text)?);
        folders.extend([share, storage]);
    }
    let staged = staging::of(name, &pod, &oem, request.agent_exe.as_deref())?;
    for (path, text) in staged.texts {
        files.push(file(path, Zeroizing::new(text.to_owned()))?);
    }
    files.extend(staged.exe_file);
    files.push(file(dir.join(Pod::SETTINGS_FILE), settings_yaml(&pod)?)?);

    let mut plan = Plan {
        name: name.clone(),
        dir,
        settings: pod,
        token_fate,
        guest_exe: staged.exe,
        folders,
        files,
        notes: staged.notes,
        warnings: staged.warnings,
        token,
        oem,
    };
    remark(&mut plan, earlier.as_ref(), runs);
    if let Some(machine) = plan.settings.machine.as_ref().filter(|_| plan.settings.engine != EngineKind::Local) {
        let facts = Facts::gather(&home.storage_dir(name));
        let is_new = earlier.as_ref().is_none_or(is_new_disk);
        // asked of the engine only where the answer matters: it takes a while
        let runs = runs || (machine_check::lacks_memory(&facts, machine) && resolve::is_up(earlier.as_ref()).await);
        plan.warnings.extend(machine_check::warnings(&facts, machine, plan.settings.guest, is_new, runs));
    }
    Ok(plan)
}

/// The pod's token: what is there, else its staged copy, else a new one.
fn token_for(dir: &Path, oem: &Path, pod_exists: bool) -> Result<(Token, TokenFate)> {
    let load = |path: PathBuf| match token::load(&path, Owners::Us) {
        Err(TokenError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    };
    if let Some(token) = load(dir.join(TOKEN_FILE))? {
        return Ok((token, TokenFate::Kept));
    }
    if let Some(token) = load(oem.join(STAGED_NAME))? {
        return Ok((token, TokenFate::Restored));
    }
    Ok((Token::generate()?, if pod_exists { TokenFate::Replaced } else { TokenFate::Created }))
}

fn remark(plan: &mut Plan, earlier: Option<&Pod>, runs: bool) {
    let name = &plan.name;
    match plan.token_fate {
        TokenFate::Kept | TokenFate::Created => {}
        TokenFate::Restored => plan.notes.push(format!(
            "the token was missing; it is restored from its staged copy {}",
            plan.oem.join(STAGED_NAME).display()
        )),
        TokenFate::Replaced => plan.warnings.push(format!(
            "the token and its staged copy were gone, so there is a new one. A guest that is installed still has the old \
             one and will refuse every call: copy {} into it by hand, as C:\\OEM\\{STAGED_NAME} (its agent takes it within \
             2 s), or install it anew",
            plan.oem.join(STAGED_NAME).display()
        )),
    }
    if plan.settings.agent == AgentKind::Winpodx && plan.settings.engine != EngineKind::Local {
        plan.notes.push(format!(
            "winpodx' agent is not installed by podlink: the guest brings it, and its token is to stand in {} too",
            plan.dir.join(TOKEN_FILE).display()
        ));
    }
    let touched = plan.files.iter().any(|file| file.change == Change::Changed);
    if earlier.is_some() && touched {
        let when = if runs { "the pod runs; what changed takes" } else { "what changed takes" };
        // `up` makes a changed container anew; an agent on this machine it leaves running
        let word = if plan.settings.engine == EngineKind::Local { "restart" } else { "up" };
        plan.notes.push(format!("{when} effect with `podlink pod {word} --pod {name}`"));
    }
    if plan.settings.engine == EngineKind::Local {
        plan.notes.push("the local engine runs scripts on this machine, as this user".to_owned());
    } else {
        let what = match &plan.guest_exe {
            None | Some(GuestExe::Missing) => "the token, to be staged for the guest; no agent is staged",
            Some(_) => "what is staged for the guest: its agent, the agent's installation and its token",
        };
        plan.notes.push(format!("{} holds {what}", plan.oem.display()));
    }
}

fn plan_file(path: PathBuf, content: Zeroizing<String>, secrets: &Secrets) -> Result<PlannedFile> {
    let old = read(&path)?;
    let change = match &old {
        None => Change::Created,
        Some(old) if **old == *content => Change::Unchanged,
        Some(_) => Change::Changed,
    };
    let diff = match change {
        Change::Unchanged => String::new(),
        Change::Created | Change::Changed => {
            diff::unified(&path, old.as_ref().map(|old| old.as_str()), &content, secrets)
        }
    };
    Ok(PlannedFile { path, change, diff, content: Content::Text(content) })
}

/// What a text of ours holds; `None` where there is none.
fn read(path: &Path) -> Result<Option<Zeroizing<String>>> {
    /// None of ours comes near it.
    const MAX: u64 = 1 << 20;
    let Some(bytes) = read_bytes(path, MAX)? else { return Ok(None) };
    let bytes = Zeroizing::new(bytes);
    Ok(Some(Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned())))
}

fn settings_yaml(settings: &PodSettings) -> Result<Zeroizing<String>> {
    const HEADER: &str =
        "# The pod's settings, written by podlink setup. Change them with its flags: it checks them.\n";
    let bad = |what: String| Error::new(ErrorKind::Internal, format!("pod.yaml could not be made: {what}"));
    let options = serde_yaml::ser_options! { quote_all: true };
    let yaml = serde_yaml::to_string_with_options(settings, options).map_err(|error| bad(error.to_string()))?;
    let mut text = Zeroizing::new(String::with_capacity(HEADER.len() + yaml.len()));
    text.push_str(HEADER);
    text.push_str(&Zeroizing::new(yaml));
    match PodSettings::parse(&text) {
        Ok(back) if back == *settings => Ok(text),
        Ok(_) => Err(bad("it does not read back as it was meant".to_owned())),
        Err(reason) => Err(bad(reason)),
    }
}

/// The container of a pod.
pub(super) fn compose_pod(
    home: &Home,
    name: &PodName,
    settings: &PodSettings,
    machine: &Machine,
) -> Result<ComposePod> {
    let dir = home.pod_dir(name);
    let text = |path: PathBuf| {
        path.to_str().map(str::to_owned).ok_or_else(|| {
            Error::new(ErrorKind::Settings, format!("the path {} is no UTF-8 text", path.display()))
                .with_hint("set PODLINK_HOME to another folder")
        })
    };
    let is_windows = settings.guest == GuestOs::Windows;
    Ok(ComposePod {
        pod: name.to_string(),
        project: home.project(name),
        image: machine.image.clone(),
        version: is_windows.then(|| "11".to_owned()),
        cpus: machine.cpus,
        ram: machine.ram.clone(),
        disk: machine.disk.clone(),
        user: machine.user.clone(),
        password: machine.password.clone(),
        timezone: machine.timezone.clone(),
        network: machine.network.clone(),
        ports: HostPorts {
            agent: settings.ports.agent,
            rdp: is_windows.then_some(settings.ports.rdp),
            web: settings.ports.web,
        },
        devices: ["/dev/kvm", "/dev/net/tun"]
            .into_iter()
            .filter(|path| Path::new(path).exists())
            .map(str::to_owned)
            .collect(),
        oem: text(dir.join(Pod::OEM_DIR))?,
        shared: text(dir.join(Pod::SHARE_DIR))?,
        storage: text(home.storage_dir(name))?,
        relabel: if settings.engine == EngineKind::Podman { Relabel::Private } else { Relabel::No },
    })
}

fn compose_yaml(pod: &ComposePod) -> Result<Zeroizing<String>> {
    compose::render(pod).map_err(|error| {
        let hint = match &error {
            compose::ComposeError::Colon { .. } => "set PODLINK_HOME to a folder without a colon in its path",
            compose::ComposeError::Unprintable { .. } => "choose another text",
            _ => "this is a bug in podlink: please report it",
        };
        Error::new(ErrorKind::Settings, "the settings do not go into compose.yaml").with_source(error).with_hint(hint)
    })
}
