//! Puts the sources together: defaults, file, environment, flags.

use lepus_console::nearest;

use super::{Config, ConfigError, ConfigErrors, Place, SETTINGS, Setting, file, rabbitmq};

/// What there is to read, already fetched, so that loading has no other input.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Files in the form of `rabbitmq.conf`.
    pub rabbitmq: Vec<rabbitmq::File>,
    /// Environment variables of RabbitMQ's image.
    pub rabbitmq_environment: Vec<(String, String)>,
    /// The file's name and content.
    pub file: Option<(String, String)>,
    /// Environment variables whose names start with `LEPUS_`, without `LEPUS_CONFIG`.
    pub environment: Vec<(String, String)>,
    /// Flags as they were written (with dashes) and their values.
    pub flags: Vec<(String, String)>,
}

impl Sources {
    /// The environment of this process and the file that `--config` or `LEPUS_CONFIG` names.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn fetch(
        config_path: Option<String>,
        flags: Vec<(String, String)>,
    ) -> Result<Sources, ConfigErrors> {
        let (mut environment, mut rabbitmq_environment) = (Vec::new(), Vec::new());
        let mut named = config_path.map(|path| (path, Place::Flag("--config".to_owned())));
        for (name, value) in std::env::vars_os() {
            let (Ok(name), value) = (name.into_string(), value.to_string_lossy().into_owned())
            else {
                continue;
            };
            if rabbitmq::of_variable(&name).is_some() || name.starts_with("RABBITMQ_CONFIG_FILE") {
                rabbitmq_environment.push((name, value));
            } else if name == "LEPUS_CONFIG" {
                named = named.or(Some((value, Place::Environment(name))));
            } else if name.starts_with("LEPUS_") {
                environment.push((name, value));
            }
        }
        environment.sort();
        let file = match named {
            None => None,
            Some((path, place)) => {
                let content = std::fs::read_to_string(&path).map_err(|error| {
                    let text = format!("cannot read {path}: {error}");
                    ConfigErrors(vec![ConfigError { place, text }])
                })?;
                Some((path, content))
            }
        };
        let variable = |wanted: &str| {
            let mut found = rabbitmq_environment.iter().filter(|(name, _)| name == wanted);
            found.next().map(|(_, value): &(String, String)| value.as_str())
        };
        let theirs =
            rabbitmq::fetch(variable("RABBITMQ_CONFIG_FILE"), variable("RABBITMQ_CONFIG_FILES"));
        let rabbitmq = theirs.map_err(|text| {
            let place = Place::Environment("RABBITMQ_CONFIG_FILE".to_owned());
            ConfigErrors(vec![ConfigError { place, text }])
        })?;
        Ok(Sources { rabbitmq, rabbitmq_environment, file, environment, flags })
    }

    /// Sentences on what stands in files of RabbitMQ's and has no meaning here.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.rabbitmq.iter().flat_map(|file| rabbitmq::read(file).notes).collect()
    }
}

/// Reads all sources; a later one wins.
///
/// # Errors
/// Everything that is wrong at once, each with its place and what is accepted.
pub fn load(sources: &Sources) -> Result<Config, ConfigErrors> {
    let mut config = Config::preset();
    let mut errors = Vec::new();
    for file in &sources.rabbitmq {
        take_file(&mut config, &file.path, rabbitmq::read(file).entries, &mut errors);
    }
    for (name, value) in &sources.rabbitmq_environment {
        let setting = rabbitmq::of_variable(name).and_then(super::setting);
        if let Some(setting) = setting {
            let place = Place::Environment(name.clone());
            let read = apply(&mut config, setting, "", Some(value.clone()));
            errors.extend(read.err().map(|text| ConfigError { place, text }));
        }
    }
    if let Some((path, content)) = &sources.file {
        match file::entries(path, content) {
            Err(error) => errors.push(error),
            Ok(entries) => take_file(&mut config, path, entries, &mut errors),
        }
    }
    for (name, value) in &sources.environment {
        if is_foreign(name, value) {
            continue;
        }
        let place = Place::Environment(name.clone());
        let known = SETTINGS.iter().find(|one| one.has_variable(name));
        let long = known.map(Setting::variable).filter(|long| long != name);
        if let Some(long) = long.filter(|long| sources.environment.iter().any(|(k, _)| k == long)) {
            let text = format!("{long} is set as well, and means the same: take one of them away");
            errors.push(ConfigError { place, text });
            continue;
        }
        let read = match known {
            Some(setting) => apply(&mut config, setting, "", Some(value.clone())),
            None => Err(unknown("no such variable", name, variables())),
        };
        errors.extend(read.err().map(|text| ConfigError { place, text }));
    }
    for (name, value) in &sources.flags {
        let place = Place::Flag(name.clone());
        let known = SETTINGS.iter().find(|one| one.has_flag(name));
        let read = match known {
            Some(setting) => apply(&mut config, setting, "", Some(value.clone())),
            None => Err(unknown_flag(name)),
        };
        errors.extend(read.err().map(|text| ConfigError { place, text }));
    }
    if errors.is_empty() {
        errors.extend(
            together(&config).into_iter().map(|text| ConfigError { place: Place::Together, text }),
        );
    }
    if errors.is_empty() { Ok(config) } else { Err(ConfigErrors(errors)) }
}

/// Takes what stands in a file.
fn take_file(
    config: &mut Config,
    path: &str,
    entries: Vec<file::Entry>,
    errors: &mut Vec<ConfigError>,
) {
    for entry in entries {
        let place = Place::File { path: path.to_owned(), line: entry.line };
        let read = match super::setting(&entry.key) {
            Some(setting) => apply(config, setting, &format!("{}: ", entry.key), entry.text),
            None => Err(unknown_key(&entry.key)),
        };
        errors.extend(read.err().map(|text| ConfigError { place, text }));
    }
}

fn apply(
    config: &mut Config,
    setting: &Setting,
    prefix: &str,
    text: Option<String>,
) -> Result<(), String> {
    let value = text.as_deref().and_then(|text| setting.kind.read(text));
    let Some(value) = value else {
        let given = match text {
            _ if setting.secret => "the value".to_owned(),
            Some(text) => format!("{text:?}"),
            None => "a value of this form".to_owned(),
        };
        let accepted = setting.kind.accepted();
        return Err(format!("{prefix}{given} is not accepted; expected {accepted}"));
    };
    (setting.assign)(config, value);
    Ok(())
}

/// Rules over more than one setting.
fn together(config: &Config) -> Vec<String> {
    let mut wrong = Vec::new();
    let (certificate, key) = (config.tls_certificate.is_some(), config.tls_key.is_some());
    if certificate != key {
        let missing = if certificate { "tls.key" } else { "tls.certificate" };
        wrong.push(format!("TLS needs both tls.certificate and tls.key; {missing} is not set"));
    }
    if config.tls_verify != "none" && config.tls_ca.is_none() {
        wrong.push(format!(
            "tls.verify = {:?} needs tls.ca, the authorities that sign client certificates",
            config.tls_verify
        ));
    }
    if config.tls_verify == "none" && config.tls_crl.is_some() {
        wrong.push(
            "tls.crl needs tls.verify = \"optional\" or \"required\": without that no client \
             certificate is looked at"
                .to_owned(),
        );
    }
    if config.listen.is_empty() && (!certificate || config.tls_listen.is_empty()) {
        wrong.push("no listener: listen is none and there is none with TLS either".to_owned());
    }
    for (name, text) in
        [("default.user", &config.default_user), ("default.vhost", &config.default_vhost)]
    {
        if text.is_empty() || text.len() > 255 {
            wrong.push(format!("{name} must have 1 to 255 bytes"));
        }
    }
    wrong
}

fn unknown_key(key: &str) -> String {
    if file::is_section(key) {
        return format!("{key} is a section and has no value: its keys stand below [{key}]");
    }
    let by_name = |name: &str| {
        let names = SETTINGS.iter().filter_map(|one| one.key.rsplit('.').next());
        let found = nearest(name, names)?;
        SETTINGS.iter().map(|one| one.key).find(|key| key.rsplit('.').next() == Some(found))
    };
    let name = key.rsplit('.').next().unwrap_or(key);
    let hint = nearest(key, SETTINGS.iter().map(|one| one.key)).or_else(|| by_name(name));
    match hint {
        Some(hint) => format!("unknown key {key}; did you mean {hint}?"),
        None => format!("unknown key {key}; `lepus config` prints all keys"),
    }
}

/// The message for a flag that does not exist.
#[must_use]
pub fn unknown_flag(name: &str) -> String {
    unknown("no such flag", name, SETTINGS.iter().map(Setting::flag))
}

fn unknown(what: &str, name: &str, known: impl Iterator<Item = String>) -> String {
    let known: Vec<String> = known.collect();
    match nearest(name, known.iter().map(String::as_str)) {
        Some(hint) => format!("{what}; did you mean {hint}?"),
        None => format!("{what}; see `lepus serve --help` for all settings"),
    }
}

fn variables() -> impl Iterator<Item = String> {
    SETTINGS.iter().flat_map(|one| [Some(one.variable()), one.short_variable()]).flatten()
}

/// Whether the variable is none of ours: Kubernetes sets some for a service of the name `lepus` or
/// `lepus-something`, and applications keep a broker's address in one that ends in URI or URL. What
/// Kubernetes has in `LEPUS_PORT` is a URL, too; a number there is meant for us.
#[must_use]
pub fn is_foreign(variable: &str, value: &str) -> bool {
    let endings = ["_SERVICE_HOST", "_SERVICE_PORT", "_URI", "_URL"];
    endings.iter().any(|ending| variable.ends_with(ending))
        || (variable.ends_with("_PORT") && value.contains("://"))
        || variable.contains("_SERVICE_PORT_")
        || variable
            .split_once("_PORT_")
            .is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Sources {
        let own = |list: &[(&str, &str)]| {
            list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        Sources {
            file: Some(("lepus.toml".to_owned(), file.to_owned())),
            environment: own(environment),
            flags: own(flags),
            ..Sources::default()
        }
    }

    fn errors(sources: &Sources) -> Vec<String> {
        let errors = load(sources).unwrap_err();
        errors.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_flag_wins_over_the_environment_and_that_over_the_file() {
        let file = "shards = 2\n[limits]\nheartbeat = 5\nchannel_max = 7\n";
        let environment = [("LEPUS_SHARDS", "3"), ("LEPUS_LIMITS_HEARTBEAT", "6")];
        let config = load(&sources(file, &environment, &[("--shards", "4")])).unwrap();
        assert_eq!(config.shards, Some(4));
        assert_eq!(config.heartbeat.as_secs(), 6);
        assert_eq!(config.channel_max, 7);
        assert_eq!(config.frame_max, 131_072);
    }

    #[test]
    fn a_wrong_key_names_line_and_nearest() {
        let file = "\n[limits]\nchanel_max = 5\n[network]\nport = 1\n";
        assert_eq!(
            errors(&sources(file, &[], &[])),
            [
                "lepus.toml:3: unknown key limits.chanel_max; did you mean limits.channel_max?",
                "lepus.toml:5: unknown key network.port; `lepus config` prints all keys",
            ]
        );
        assert_eq!(
            errors(&sources("limits = 3", &[], &[])),
            ["lepus.toml:1: limits is a section and has no value: its keys stand below [limits]"]
        );
        assert_eq!(
            errors(&sources("channel_max = 5", &[], &[])),
            ["lepus.toml:1: unknown key channel_max; did you mean limits.channel_max?"]
        );
    }

    #[test]
    fn a_wrong_value_names_what_is_accepted() {
        let file = "shards = 'many'\ndata_dir = 2020-01-01\n";
        let environment = [("LEPUS_LOG_FORMAT", "xml"), ("LEPUS_SHRADS", "1")];
        let flags = [("--limits-frame-max", "1"), ("--limit-frame-max", "1")];
        assert_eq!(
            errors(&sources(file, &environment, &flags)),
            [
                "lepus.toml:1: shards: \"many\" is not accepted; expected auto, or a number from 1 to 256",
                "lepus.toml:2: data_dir: a value of this form is not accepted; expected a path",
                "environment variable LEPUS_LOG_FORMAT: \"xml\" is not accepted; expected one of text, json",
                "environment variable LEPUS_SHRADS: no such variable; did you mean LEPUS_SHARDS?",
                "flag --limits-frame-max: \"1\" is not accepted; expected a size from 4KiB to 128MiB, such as 65536 or 64KiB",
                "flag --limit-frame-max: no such flag; did you mean --limits-frame-max?",
            ]
        );
    }

    #[test]
    fn settings_that_do_not_go_together_say_so() {
        let file = "listen = 'none'\n[tls]\ncertificate = 'c.pem'\nverify = 'required'\n";
        let errors = errors(&sources(file, &[], &[]));
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert!(errors[0].contains("tls.key is not set"), "{errors:?}");
        assert!(errors[1].contains("needs tls.ca"), "{errors:?}");
    }

    #[test]
    fn variables_of_kubernetes_services_are_no_settings() {
        let environment = [
            ("LEPUS_SERVICE_HOST", "10.0.0.1"),
            ("LEPUS_PORT", "tcp://10.0.0.1:5672"),
            ("LEPUS_PORT_5672_TCP_ADDR", "10.0.0.1"),
            ("LEPUS_METRICS_SERVICE_PORT_HTTP", "15692"),
        ];
        assert_eq!(load(&sources("", &environment, &[])).unwrap(), Config::preset());
    }

    #[test]
    fn a_port_in_the_environment_is_taken_or_named() {
        let config = load(&sources("", &[("LEPUS_PORT", "5673")], &[])).unwrap();
        assert_eq!(config.listen, load(&sources("", &[], &[("--port", "5673")])).unwrap().listen);
        assert_ne!(config.listen, Config::preset().listen);
        let environment = [("LEPUS_METRICS_PORT", "1"), ("LEPUS_PORT", "1"), ("LEPUS_LISTEN", "2")];
        let errors = errors(&sources("", &environment, &[]));
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert!(errors[0].contains("LEPUS_METRICS_PORT: no such variable"), "{errors:?}");
        assert!(errors[1].contains("LEPUS_PORT: LEPUS_LISTEN is set as well"), "{errors:?}");
    }

    #[test]
    fn a_secret_is_not_repeated() {
        let file = "[default]\npassword = 2020-01-01\n";
        let errors = errors(&sources(file, &[], &[]));
        assert_eq!(
            errors,
            ["lepus.toml:2: default.password: the value is not accepted; expected any text"]
        );
    }
}
