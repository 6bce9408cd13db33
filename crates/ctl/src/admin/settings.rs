//! The options of `rabbitmqadmin`, from its command line and its configuration file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// An option: letter, name, key in the configuration file, whether a value follows, what it is for.
pub struct AdminOption {
    /// For short.
    pub letter: Option<char>,
    /// In full.
    pub name: &'static str,
    /// In the configuration file.
    pub key: &'static str,
    /// What the help calls its value; empty when none follows.
    pub value: &'static str,
    /// What it is for.
    pub about: &'static str,
}

const fn option(
    letter: Option<char>,
    name: &'static str,
    key: &'static str,
    value: &'static str,
    about: &'static str,
) -> AdminOption {
    AdminOption { letter, name, key, value, about }
}

/// All options.
pub const OPTIONS: &[AdminOption] = &[
    option(Some('h'), "help", "help", "", "show this help message and exit"),
    option(
        Some('c'),
        "config",
        "config",
        "CONFIG",
        "configuration file [default: ~/.rabbitmqadmin.conf]",
    ),
    option(
        Some('N'),
        "node",
        "node",
        "NODE",
        "section of the configuration file [default: default]",
    ),
    option(Some('H'), "host", "hostname", "HOST", "connect to host HOST [default: localhost]"),
    option(Some('P'), "port", "port", "PORT", "connect to port PORT [default: 15672]"),
    option(None, "path-prefix", "path_prefix", "PREFIX", "what stands before /api in paths"),
    option(
        Some('V'),
        "vhost",
        "vhost",
        "VHOST",
        "virtual host [default: all for list, '/' for declare]",
    ),
    option(Some('u'), "username", "username", "USERNAME", "connect as USERNAME [default: guest]"),
    option(Some('p'), "password", "password", "PASSWORD", "connect with PASSWORD [default: guest]"),
    option(Some('U'), "base-uri", "base_uri", "URI", "host, port, user and password in one"),
    option(Some('q'), "quiet", "quiet", "", "suppress status messages"),
    option(Some('s'), "ssl", "ssl", "", "connect with TLS; not supported yet"),
    option(None, "ssl-key-file", "ssl_key_file", "FILE", "for TLS"),
    option(None, "ssl-cert-file", "ssl_cert_file", "FILE", "for TLS"),
    option(None, "ssl-ca-cert-file", "ssl_ca_cert_file", "FILE", "for TLS"),
    option(
        None,
        "ssl-disable-hostname-verification",
        "ssl_disable_hostname_verification",
        "",
        "for TLS",
    ),
    option(Some('k'), "ssl-insecure", "ssl_insecure", "", "for TLS"),
    option(
        Some('t'),
        "request-timeout",
        "request_timeout",
        "SECONDS",
        "for one request [default: 120]",
    ),
    option(
        Some('f'),
        "format",
        "format",
        "FORMAT",
        "one of raw_json, pretty_json, tsv, long, table, kvp, bash [default: table]",
    ),
    option(Some('S'), "sort", "sort", "KEY", "sort key of lists"),
    option(Some('R'), "sort-reverse", "sort_reverse", "", "reverse the order"),
    option(Some('d'), "depth", "depth", "DEPTH", "how deep tables go [default: 1]"),
    option(None, "bash-completion", "bash_completion", "", "print a completion script for bash"),
    option(None, "version", "version", "", "display version and exit"),
];

/// What the command line and the configuration file say.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    values: BTreeMap<&'static str, String>,
    /// What is no option, in order.
    pub words: Vec<String>,
}

/// What is wrong with the options, and the exit code for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// 2 for options that nobody knows, 1 for others.
    pub code: u8,
    /// For people.
    pub text: String,
}

impl Settings {
    /// Reads the command line, and the configuration file that it or the environment names.
    ///
    /// # Errors
    /// When an option is not known or lacks its value, or the file cannot be used.
    pub fn read(arguments: &[String]) -> Result<Settings, Wrong> {
        let mut settings = Settings::default();
        settings.read_line(arguments)?;
        settings.read_file()?;
        settings.read_uri()?;
        Ok(settings)
    }

    /// The value of a setting, or of what stands for it.
    #[must_use]
    pub fn get(&self, key: &str) -> &str {
        let default = match key {
            "hostname" => "localhost",
            "port" => "15672",
            "username" | "password" => "guest",
            "request_timeout" => "120",
            "format" => "table",
            "depth" => "1",
            "node" => "default",
            "declare_vhost" => "/",
            _ => "",
        };
        self.values.get(key).map_or(default, String::as_str)
    }

    /// The value of a setting, if it was given.
    #[must_use]
    pub fn given(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// Whether a switch is on.
    #[must_use]
    pub fn is_on(&self, key: &str) -> bool {
        self.values.get(key).is_some_and(|value| value == "True")
    }

    fn read_line(&mut self, arguments: &[String]) -> Result<(), Wrong> {
        let wrong = |text: String| Wrong { code: 2, text };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if argument == "--" {
                self.words.extend(rest.by_ref().cloned());
            } else if let Some(name) = argument.strip_prefix("--") {
                let (name, mut value) = match name.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (name, None),
                };
                let option =
                    long(name).ok_or_else(|| wrong(format!("no such option: --{name}")))?;
                if !option.value.is_empty() && value.is_none() {
                    value = rest.next().cloned();
                }
                self.set(option, value)?;
            } else if argument.starts_with('-') && argument.len() > 1 {
                let mut letters = argument[1..].chars();
                while let Some(letter) = letters.next() {
                    let option = OPTIONS.iter().find(|option| option.letter == Some(letter));
                    let option =
                        option.ok_or_else(|| wrong(format!("no such option: -{letter}")))?;
                    if option.value.is_empty() {
                        self.set(option, None)?;
                        continue;
                    }
                    let behind = letters.as_str();
                    let value = match behind {
                        "" => rest.next().cloned(),
                        behind => Some(behind.to_owned()),
                    };
                    self.set(option, value)?;
                    break;
                }
            } else {
                self.words.push(argument.clone());
            }
        }
        Ok(())
    }

    fn set(&mut self, option: &'static AdminOption, value: Option<String>) -> Result<(), Wrong> {
        let value = match (option.value.is_empty(), value) {
            (true, _) => "True".to_owned(),
            (false, Some(value)) => value,
            (false, None) => {
                let text = format!("--{} option requires 1 argument", option.name);
                return Err(Wrong { code: 2, text });
            }
        };
        self.values.insert(option.key, value);
        Ok(())
    }

    fn read_file(&mut self) -> Result<(), Wrong> {
        let wrong = |text: String| Wrong { code: 1, text };
        let path = match self.given("config") {
            Some(path) if Path::new(path).is_file() => PathBuf::from(path),
            Some(path) => return Err(wrong(format!("Could not read config file '{path}'"))),
            None => {
                let home = std::env::var_os("HOME").map(PathBuf::from);
                match home
                    .map(|home| home.join(".rabbitmqadmin.conf"))
                    .filter(|path| path.is_file())
                {
                    Some(path) => path,
                    None => return Ok(()),
                }
            }
        };
        let bytes = crate::file::read(&path);
        let bytes = bytes.map_err(|error| {
            wrong(format!("Could not read config file '{}': {error}", path.display()))
        })?;
        let section = self.get("node").to_owned();
        match self.read_section(&String::from_utf8_lossy(&bytes), &section) {
            true => Ok(()),
            false if section == "default" => Ok(()),
            false => Err(wrong(format!(
                "Could not read section '{section}' in config file '{}':\n   No section: '{section}'",
                path.display()
            ))),
        }
    }

    /// Takes over what a section says and the command line did not; whether it is there.
    fn read_section(&mut self, text: &str, section: &str) -> bool {
        let (mut inside, mut found) = (false, false);
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                inside = name == section;
                found |= inside;
                continue;
            }
            if !inside || line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            let Some((key, value)) = line.split_once(['=', ':']) else { continue };
            let key = key.trim().to_ascii_lowercase();
            let known = OPTIONS.iter().map(|option| option.key).chain(["declare_vhost"]);
            if let Some(key) = known.into_iter().find(|known| *known == key) {
                self.values.entry(key).or_insert_with(|| value.trim().to_owned());
            }
        }
        found
    }

    /// Takes apart `http://user:password@host:port`.
    fn read_uri(&mut self) -> Result<(), Wrong> {
        let Some(uri) = self.given("base_uri").map(str::to_owned) else { return Ok(()) };
        let (scheme, rest) = uri.split_once("://").unwrap_or(("http", &uri));
        if scheme == "https" {
            self.values.insert("ssl", "True".to_owned());
        }
        let rest = rest.split(['/', '?', '#']).next().unwrap_or("");
        let (login, address) = match rest.rsplit_once('@') {
            Some((login, address)) => (Some(login), address),
            None => (None, rest),
        };
        if let Some(login) = login {
            let (user, password) = match login.split_once(':') {
                Some((user, password)) => (user, Some(password)),
                None => (login, None),
            };
            self.values.insert("username", user.to_owned());
            if let Some(password) = password {
                self.values.insert("password", password.to_owned());
            }
        }
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (address, None),
        };
        self.values.insert("hostname", host.trim_matches(['[', ']']).to_owned());
        if let Some(port) = port {
            if port.parse::<u16>().is_err() {
                return Err(Wrong {
                    code: 1,
                    text: format!("'{port}' in the base URI is no port"),
                });
            }
            self.values.insert("port", port.to_owned());
        }
        Ok(())
    }
}

/// The option of that name, or of the only one that begins so.
fn long(name: &str) -> Option<&'static AdminOption> {
    let exact = OPTIONS.iter().find(|option| option.name == name);
    let mut beginning = OPTIONS.iter().filter(|option| option.name.starts_with(name));
    exact.or_else(|| match (beginning.next(), beginning.next()) {
        (Some(option), None) => Some(option),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<Settings, Wrong> {
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        Settings::read(&arguments)
    }

    #[test]
    fn options_stand_anywhere_short_long_and_shortened() {
        let settings =
            read(&["list", "-qP", "1", "queues", "--user=u", "--pass", "p", "-Hh"]).unwrap();
        assert_eq!(settings.words, ["list", "queues"]);
        assert!(settings.is_on("quiet"));
        let values =
            ["port", "username", "password", "hostname", "format"].map(|key| settings.get(key));
        assert_eq!(values, ["1", "u", "p", "h", "table"]);
        assert_eq!(read(&["-x"]).unwrap_err().text, "no such option: -x");
        assert_eq!(read(&["--ssl-c"]).unwrap_err().code, 2);
        assert_eq!(read(&["-H"]).unwrap_err().text, "--host option requires 1 argument");
    }

    #[test]
    fn a_base_uri_wins_over_options() {
        let settings = read(&["-U", "http://u:p:q@[::1]:8080/x", "-H", "other"]).unwrap();
        let values = ["hostname", "port", "username", "password"].map(|key| settings.get(key));
        assert_eq!(values, ["::1", "8080", "u", "p:q"]);
        assert!(read(&["-U", "http://h:port"]).is_err());
    }

    #[test]
    fn a_section_says_what_the_command_line_does_not() {
        let mut settings = read(&["-u", "me"]).unwrap();
        let text = "[a]\nport = 1\n[b]\n# no\nhostname: there\nusername = you\nport=2\nnonsense\n";
        assert!(settings.read_section(text, "b"));
        let values = ["hostname", "port", "username"].map(|key| settings.get(key));
        assert_eq!(values, ["there", "2", "me"]);
        assert!(!settings.read_section(text, "c"));
    }
}
