//! Windows Firewall and Microsoft Defender, asked by their own tools and believed only by what they read back.

use std::{io::ErrorKind, path::Path};

use super::places::system_program;
use crate::guest::install::{Tool, Verdict};

/// A rule lasts.
pub(in crate::guest) const FIREWALL_FORGETS: bool = false;

/// The rule's name, which tells its port.
fn rule(port: u16) -> String {
    format!("podlink agent TCP {port}")
}

/// Lets everybody in by these ports, on networks of every kind.
pub(in crate::guest) async fn open_firewall(ports: &[u16]) -> Verdict {
    for port in ports {
        match open(*port).await {
            Verdict::Done(_) => {}
            other => return other,
        }
    }
    Verdict::DONE
}

async fn open(port: u16) -> Verdict {
    match shown(port).await {
        Ok(true) => return Verdict::DONE,
        Ok(false) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Verdict::Unavailable("there is no netsh to set a rule with".to_owned());
        }
        Err(error) => return Verdict::failed(error),
    }
    // one of the name that says something else goes first: netsh would add a second
    drop(netsh(&["delete", "rule", &format!("name={}", rule(port))]).await);
    let name = format!("name={}", rule(port));
    let local = format!("localport={port}");
    let added =
        netsh(&["add", "rule", &name, "dir=in", "action=allow", "protocol=TCP", &local, "profile=any", "enable=yes"])
            .await;
    match added {
        Ok(added) if added.succeeded => {}
        Ok(added) => return Verdict::Failed(format!("netsh does not add the rule: {}", added.said)),
        Err(error) => return Verdict::failed(error),
    }
    match shown(port).await {
        Ok(true) => Verdict::DONE,
        // Wine's netsh says yes to everything
        Ok(false) => Verdict::Unavailable("netsh took the rule and does not show it".to_owned()),
        Err(error) => Verdict::failed(error),
    }
}

/// Whether the rule is there. Its own words are in the system's language: only its name and the port are looked for.
async fn shown(port: u16) -> std::io::Result<bool> {
    let shown = netsh(&["show", "rule", &format!("name={}", rule(port))]).await?;
    let digits = port.to_string();
    let tells = |line: &str| line.split(|c: char| !c.is_ascii_digit()).any(|word| word == digits);
    // the first line with the port is the rule's name, another its local port
    Ok(shown.succeeded && shown.stdout.lines().filter(|line| tells(line)).count() >= 2)
}

async fn netsh(args: &[&str]) -> std::io::Result<Tool> {
    let mut all = vec!["advfirewall", "firewall"];
    all.extend(args);
    Tool::run(&system_program("netsh.exe"), &all).await
}

/// Takes the rules away again.
pub(in crate::guest) async fn close_firewall(ports: &[u16]) -> Verdict {
    for port in ports {
        match shown(*port).await {
            Ok(true) => {}
            _ => continue,
        }
        match netsh(&["delete", "rule", &format!("name={}", rule(*port))]).await {
            Ok(deleted) if deleted.succeeded => {}
            Ok(deleted) => return Verdict::Failed(format!("netsh does not delete the rule: {}", deleted.said)),
            Err(error) => return Verdict::failed(error),
        }
    }
    Verdict::DONE
}

/// What the scripts below say when they have come to their end: a PowerShell that is none says nothing.
const SAID: &str = "podlink-excluded:";

/// Keeps Defender from scanning this folder.
pub(in crate::guest) async fn exclude_from_scans(folder: &Path) -> Verdict {
    let Some(quoted) = quoted(folder) else {
        return Verdict::Unavailable(format!("{} cannot be named to PowerShell", folder.display()));
    };
    let script = format!(
        "$ErrorActionPreference = 'Stop'; $p = {quoted}; \
         if (-not (Get-Command Add-MpPreference -ErrorAction SilentlyContinue)) {{ '{SAID}none'; exit 0 }}; \
         if ((Get-MpPreference).ExclusionPath -notcontains $p) {{ Add-MpPreference -ExclusionPath $p }}; \
         '{SAID}' + ((Get-MpPreference).ExclusionPath -contains $p)"
    );
    match powershell(&script).await {
        Ok(tool) if tool.stdout.contains(&format!("{SAID}True")) => Verdict::DONE,
        Ok(tool) if tool.stdout.contains(&format!("{SAID}none")) => {
            Verdict::Unavailable("there is no Defender here".to_owned())
        }
        Ok(tool) if tool.stdout.contains(SAID) => {
            Verdict::Failed("Defender took the exclusion and does not show it: a policy may forbid it".to_owned())
        }
        Ok(tool) if tool.succeeded => Verdict::Unavailable("PowerShell does not answer".to_owned()),
        Ok(tool) => Verdict::Failed(format!("Defender does not take the exclusion: {}", tool.said)),
        Err(error) if error.kind() == ErrorKind::NotFound => Verdict::Unavailable("there is no PowerShell".to_owned()),
        Err(error) => Verdict::failed(error),
    }
}

/// Has it scanned again.
pub(in crate::guest) async fn include_in_scans(folder: &Path) -> Verdict {
    let Some(quoted) = quoted(folder) else { return Verdict::DONE };
    let script = format!(
        "if (Get-Command Remove-MpPreference -ErrorAction SilentlyContinue) \
         {{ Remove-MpPreference -ExclusionPath {quoted} -ErrorAction Stop }}"
    );
    match powershell(&script).await {
        Ok(tool) if !tool.succeeded => Verdict::Failed(format!("the exclusion stays: {}", tool.said)),
        Err(error) if error.kind() != ErrorKind::NotFound => Verdict::failed(error),
        _ => Verdict::DONE,
    }
}

/// A string that PowerShell takes literally.
fn quoted(path: &Path) -> Option<String> {
    let text = path.to_str().filter(|text| !text.contains(['"', '\n']))?;
    Some(format!("'{}'", text.replace('\'', "''")))
}

async fn powershell(script: &str) -> std::io::Result<Tool> {
    let program = system_program(r"WindowsPowerShell\v1.0\powershell.exe");
    Tool::run(&program, &["-NoLogo", "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-Command", script])
        .await
}
