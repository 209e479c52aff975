//! The pod as Kubernetes objects: a Secret, a claim for the disk, a Deployment of one, a Service.
//!
//! Implementation note: strings are double-quoted and numbers plain, as the API's schema wants them. Kubernetes
//! replaces `$(NAME)` in the `value` of a variable, so `$` is doubled there; what comes from a Secret it leaves alone.

use serde::{Serialize, Serializer, ser::SerializeMap as _};
use serde_json::{Value, json};
use serde_yaml::DoubleQuoted;
use sha2::Digest as _;
use zeroize::Zeroizing;

use super::{
    Secret,
    emit::{EmitError, check_texts, forwards_agent},
    model::{ComposePod, guest_port},
    render::POD_LABEL,
};

const FORM: &str = "the Kubernetes manifest";
/// The Secret's keys.
const TOKEN_KEY: &str = "agent_token.txt";
const PASSWORD_KEY: &str = "password";
/// Beside the guest's memory: QEMU itself, its video memory, the image's services.
const EXTRA_MEMORY_MIB: u64 = 1024;
/// Beside the guest's disk: the installation medium and what is unpacked of it.
const EXTRA_STORAGE_MIB: u64 = 16 * 1024;

/// Makes the manifest, and reads it back: equal to what was meant, both legs there.
///
/// # Errors
/// When a text cannot be carried, a size is none, or the result is not what was meant.
pub fn render_kubernetes(pod: &ComposePod, token: &Secret) -> Result<Zeroizing<String>, EmitError> {
    check_texts(pod, FORM)?;
    let name = kubernetes_name(&pod.pod);
    let documents = [
        (secret_comment(pod, &name), secret(pod, &name, token)),
        (STORAGE_COMMENT.to_owned(), storage(pod, &name)?),
        (DEPLOYMENT_COMMENT.to_owned(), deployment(pod, &name)?),
        (service_comment(pod, &name), service(pod, &name)),
    ];
    let mut text = Zeroizing::new(String::with_capacity(32 << 10));
    for (comment, document) in &documents {
        let yaml = serde_yaml::to_string(&Quoted(document)).map_err(|_| unmade("it does not go into YAML"))?;
        if !text.is_empty() {
            text.push_str("---\n");
        }
        text.push_str(comment);
        text.push_str(&Zeroizing::new(yaml));
    }
    let back: Vec<Value> = serde_yaml::from_multiple(&text).map_err(|_| unmade("it does not read back"))?;
    if !back.iter().eq(documents.iter().map(|(_, document)| document)) {
        return Err(EmitError::ReadsBackDifferently { form: FORM });
    }
    check_legs(&back)?;
    Ok(text)
}

/// The name of a pod's objects, which follows RFC 1123 (and 1035, for the Service): letters, digits, `-`, at most 63.
///
/// `windows` becomes `podlink-windows`. A name that must be changed, or that looks as if it had been, ends in 8 hex
/// digits of its hash, so that no two pods have the same.
pub fn kubernetes_name(pod: &str) -> String {
    const MAX: usize = 63;
    let plain = format!("podlink-{pod}");
    let is_valid = plain.len() <= MAX && !plain.ends_with('-') && !plain.contains('_');
    let looks_hashed = plain
        .rsplit_once('-')
        .is_some_and(|(_, end)| end.len() == 8 && end.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')));
    if is_valid && !looks_hashed {
        return plain;
    }
    let hash = hex::encode(&sha2::Sha256::digest(pod)[..4]);
    let mut stem = plain.replace('_', "-");
    stem.truncate(MAX - 1 - hash.len());
    format!("{}-{hash}", stem.trim_end_matches('-'))
}

fn metadata(pod: &ComposePod, name: &str) -> Value {
    // an annotation, because a label's value may not end as a pod's name may
    json!({ "name": name, "labels": labels(name), "annotations": { POD_LABEL: pod.pod } })
}

fn labels(name: &str) -> Value {
    json!({ "app.kubernetes.io/name": "podlink", "app.kubernetes.io/instance": name })
}

fn secret_comment(pod: &ComposePod, name: &str) -> String {
    let pod = &pod.pod;
    format!(
        "\
# The pod {pod} for Kubernetes, made by `podlink setup --pod {pod} --emit kubernetes`.
# It holds the agent's token and the guest's password: only you may read it, and it belongs into no repository.
#
#   podlink setup --pod {pod} --emit kubernetes | kubectl apply -f -
#   kubectl rollout status deployment/{name} --timeout=3h
"
    )
}

fn secret(pod: &ComposePod, name: &str, token: &Secret) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(pod, name),
        "type": "Opaque",
        "stringData": {
            TOKEN_KEY: format!("{}\n", token.expose()),
            PASSWORD_KEY: pod.password.expose(),
        },
    })
}

const STORAGE_COMMENT: &str = "# The guest's disk, and room for the medium that it is installed from.\n";

fn storage(pod: &ComposePod, name: &str) -> Result<Value, EmitError> {
    let size = mib("disk", &pod.disk)? + EXTRA_STORAGE_MIB;
    Ok(json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(pod, name),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": quantity(size) } },
        },
    }))
}

const DEPLOYMENT_COMMENT: &str = "\
# One at a time (Recreate): two would write to one disk.
# Privileged, as the image's own example is: a device mounted from the node is there, but only a privileged container
# may open it, and the guest needs /dev/kvm to be fast and /dev/net/tun for its network. Where a device plugin offers
# them (KubeVirt's, for one), ask for them under resources.limits instead, and drop `privileged` and both volumes.
# Ready means that the agent in the guest answers 200. Nothing is killed while it does not: an installation takes up to
# two hours, and the rollout counts as failed only after three.
# Of the agent this mounts only the token (mode 0400): its program and install.bat must be in the image's /oem, or be
# mounted there beside it.
";

fn deployment(pod: &ComposePod, name: &str) -> Result<Value, EmitError> {
    let memory = quantity(mib("ram", &pod.ram)? + EXTRA_MEMORY_MIB);
    let mut env: Vec<Value> = pod
        .environment()
        .into_iter()
        .map(|(key, value)| json!({ "name": key, "value": value.replace('$', "$$") }))
        .collect();
    env.push(json!({
        "name": "PASSWORD",
        "valueFrom": { "secretKeyRef": { "name": name, "key": PASSWORD_KEY } },
    }));
    let ports: Vec<Value> = ports(pod)
        .map(|(name, port, protocol)| json!({ "name": name, "containerPort": port, "protocol": protocol }))
        .collect();
    let device = |name: &str, path: &str| json!({ "name": name, "hostPath": { "path": path, "type": "CharDevice" } });
    let container = json!({
        "name": "guest",
        "image": pod.image,
        "env": env,
        "ports": ports,
        "resources": {
            "requests": { "cpu": pod.cpus.to_string(), "memory": memory },
            // no limit of the processor: what it takes away, the guest sees as a clock that stands still
            "limits": { "memory": memory },
        },
        "securityContext": { "privileged": true, "capabilities": { "add": ["NET_ADMIN"] } },
        "readinessProbe": {
            "httpGet": {
                "path": "/health",
                "port": guest_port::AGENT,
                // the agent refuses any other but the machine's own
                "httpHeaders": [{ "name": "Host", "value": "localhost" }],
            },
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
            "successThreshold": 1,
        },
        "volumeMounts": [
            { "name": "storage", "mountPath": "/storage" },
            // by subPath: the image copies /oem, and a Secret's folder is made of links
            { "name": "secret", "mountPath": "/oem/agent_token.txt", "subPath": TOKEN_KEY, "readOnly": true },
            { "name": "kvm", "mountPath": "/dev/kvm" },
            { "name": "tun", "mountPath": "/dev/net/tun" },
        ],
    });
    Ok(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(pod, name),
        "spec": {
            "replicas": 1,
            "strategy": { "type": "Recreate" },
            "progressDeadlineSeconds": 3 * 60 * 60,
            "selector": { "matchLabels": labels(name) },
            "template": {
                "metadata": { "labels": labels(name), "annotations": { POD_LABEL: pod.pod } },
                "spec": {
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    // the image gives the guest 105 s to shut down before it pulls the plug
                    "terminationGracePeriodSeconds": 120,
                    "containers": [container],
                    "volumes": [
                        { "name": "storage", "persistentVolumeClaim": { "claimName": name } },
                        { "name": "secret", "secret": {
                            "secretName": name,
                            "defaultMode": 0o400,
                            "items": [{ "key": TOKEN_KEY, "path": TOKEN_KEY }],
                        } },
                        device("kvm", "/dev/kvm"),
                        device("tun", "/dev/net/tun"),
                    ],
                },
            },
        },
    }))
}

fn service_comment(pod: &ComposePod, name: &str) -> String {
    format!(
        "\
# Inside the cluster only. From your own machine, where `podlink pod exec` finds it on the port that the pod has there:
#
#   kubectl port-forward service/{name} {}:{}
",
        pod.ports.agent,
        guest_port::AGENT
    )
}

fn service(pod: &ComposePod, name: &str) -> Value {
    let ports: Vec<Value> = ports(pod)
        .map(|(name, port, protocol)| json!({ "name": name, "port": port, "targetPort": port, "protocol": protocol }))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(pod, name),
        "spec": { "type": "ClusterIP", "selector": labels(name), "ports": ports },
    })
}

/// The ports by name, and their protocols.
fn ports(pod: &ComposePod) -> impl Iterator<Item = (&'static str, u16, &'static str)> {
    let fixed = [("agent", guest_port::AGENT, "TCP"), ("web", guest_port::WEB, "TCP")];
    let rdp = [("rdp", guest_port::RDP, "TCP"), ("rdp-udp", guest_port::RDP, "UDP")];
    fixed.into_iter().chain(rdp.into_iter().filter(|_| pod.ports.rdp.is_some()))
}

/// The image's `4G` in MiB: its letters count in powers of 1024.
fn mib(field: &'static str, text: &str) -> Result<u64, EmitError> {
    let size = || {
        let number = |end| text.strip_suffix(end).and_then(|number: &str| number.parse::<u32>().ok());
        let units = [('M', 1), ('G', 1024), ('T', 1024 * 1024)];
        units.into_iter().find_map(|(end, unit)| Some(u64::from(number(end)?) * unit))
    };
    size().ok_or_else(|| EmitError::Size { field, text: text.to_owned() })
}

/// In Kubernetes' own form: `5Gi`.
fn quantity(mib: u64) -> String {
    if mib.is_multiple_of(1024) { format!("{}Gi", mib / 1024) } else { format!("{mib}Mi") }
}

fn unmade(reason: &str) -> EmitError {
    // the cause's own text may quote the manifest, and the manifest holds the secrets
    EmitError::Unmade { form: FORM, reason: reason.to_owned() }
}

/// A value whose strings are written in double quotes.
struct Quoted<'a>(&'a Value);

impl Serialize for Quoted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::String(text) => DoubleQuoted(text).serialize(serializer),
            Value::Array(items) => serializer.collect_seq(items.iter().map(Quoted)),
            Value::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (key, value) in fields {
                    map.serialize_entry(key, &Quoted(value))?;
                }
                map.end()
            }
            plain => plain.serialize(serializer),
        }
    }
}

/// From the Service into the container, and from there into the guest.
fn check_legs(documents: &[Value]) -> Result<(), EmitError> {
    let leg = |what| Err(EmitError::Leg { form: FORM, what });
    let kind = |kind: &str| documents.iter().find(|document| document["kind"] == kind).unwrap_or(&Value::Null);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let container = &kind("Deployment")["spec"]["template"]["spec"]["containers"][0];
    let forwards = list(&container["env"])
        .iter()
        .any(|entry| entry["name"] == "USER_PORTS" && entry["value"].as_str().is_some_and(forwards_agent));
    if !forwards {
        return leg("the agent's port in USER_PORTS");
    }
    let service = &kind("Service")["spec"];
    if !list(&service["ports"]).iter().any(|port| port["name"] == "agent" && port["targetPort"] == guest_port::AGENT) {
        return leg("the agent's port in the Service");
    }
    if service["selector"] != kind("Deployment")["spec"]["template"]["metadata"]["labels"] {
        return leg("the Deployment's labels in the Service's selector");
    }
    if service["type"] != "ClusterIP" {
        return leg("a Service that stays inside the cluster");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::{super::render::tests::sample, *};

    fn token() -> Secret {
        Secret::new("ab".repeat(32))
    }

    #[test]
    fn it_is_the_same_each_time_and_the_password_is_in_the_secret_alone() {
        let pod = sample("yes", "hunter2");
        let text = render_kubernetes(&pod, &token()).unwrap();
        assert_eq!(*text, *render_kubernetes(&pod, &token()).unwrap());
        assert_eq!((text.matches("hunter2").count(), text.matches(token().expose()).count()), (1, 1));
        assert!(text.split("\n---\n").next().unwrap().contains("hunter2"));
        assert!(text.contains("value: \"yes\"\n"), "{}", *text);
    }

    #[test]
    fn names_are_valid_and_no_two_pods_share_one() {
        assert_eq!(kubernetes_name("windows"), "podlink-windows");
        assert_eq!(kubernetes_name("7"), "podlink-7");
        let long = "x".repeat(63);
        let hashed = kubernetes_name("a_b");
        let crafted = hashed.strip_prefix("podlink-").unwrap();
        let pods = ["a_b", "a-b", "a__b", "a-_b", "a-", "a_", "a", "a--", &long, &long[..62], &long[..55], crafted];
        let names: HashSet<String> = pods.into_iter().map(kubernetes_name).collect();
        assert_eq!(names.len(), pods.len(), "{names:?}");
        for name in &names {
            assert!(name.len() <= 63 && !name.ends_with('-'), "{name}");
            assert!(name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-'), "{name}");
        }
    }

    #[test]
    fn sizes_have_room_for_what_is_not_the_guest() {
        assert_eq!((mib("ram", "4G").unwrap(), mib("ram", "1T").unwrap()), (4096, 1 << 20));
        assert_eq!((quantity(5120), quantity(1536)), ("5Gi".into(), "1536Mi".into()));
        for bad in ["", "4", "G", "4g", "-4G", "max"] {
            assert!(matches!(mib("ram", bad), Err(EmitError::Size { .. })), "{bad}");
        }
    }

    #[test]
    fn each_broken_leg_is_named() {
        let pod = sample("a", "b");
        let text = render_kubernetes(&pod, &token()).unwrap();
        let read = |text: &str| serde_yaml::from_multiple::<Value>(text).unwrap();
        check_legs(&read(&text)).unwrap();
        for (from, to) in [
            ("USER_PORTS", "OTHER"),
            ("targetPort: 8765", "targetPort: 8766"),
            ("\"ClusterIP\"", "\"LoadBalancer\""),
            ("kind: \"Service\"", "kind: \"Other\""),
        ] {
            let broken = text.replace(from, to);
            assert_ne!(broken, *text, "{from}");
            assert!(matches!(check_legs(&read(&broken)), Err(EmitError::Leg { .. })), "{from}");
        }
    }

    #[test]
    fn a_guest_without_remote_desktop_has_no_port_for_it() {
        let mut pod = sample("a", "b");
        pod.ports.rdp = None;
        assert!(!render_kubernetes(&pod, &token()).unwrap().contains("3389"));
    }

    proptest! {
        #[test]
        fn every_text_comes_back_or_is_refused(user in any::<String>(), password in any::<String>()) {
            match render_kubernetes(&sample(&user, &password), &token()) {
                Ok(text) => {
                    let back: Vec<Value> = serde_yaml::from_multiple(&text).unwrap();
                    prop_assert_eq!(back[0]["stringData"]["password"].as_str(), Some(password.as_str()));
                }
                Err(error) => prop_assert!(matches!(error, EmitError::Unprintable { .. }), "{:?}", error),
            }
        }
    }
}
