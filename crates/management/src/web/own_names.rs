//! The names by which a client may ask for this machine as its own: what comes from here under another name may come from a page of
//! another web site whose name was made to lead here.

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;

/// The system's own list of names.
const HOSTS: &str = "/etc/hosts";
/// Bytes of it that are read.
const HOSTS_BYTES_MAX: u64 = 64 << 10;

/// Drops the last line of a list of which no more than `most` bytes were read, where it may go on behind them.
fn drop_cut_line(hosts: &mut Vec<u8>, most: usize) {
    if hosts.len() >= most {
        let whole = hosts.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        hosts.truncate(whole);
    }
}

/// Names of this machine beside `localhost`, in small letters.
#[derive(Debug)]
pub(super) struct OwnNames(Vec<String>);

impl OwnNames {
    /// The machine's name, and those of the system's list that nobody else's pages can have.
    pub(super) fn read() -> OwnNames {
        let mut hosts = Vec::new();
        if let Ok(file) = File::open(HOSTS) {
            // Without a list there is the name.
            let _ = file.take(HOSTS_BYTES_MAX).read_to_end(&mut hosts);
            drop_cut_line(&mut hosts, HOSTS_BYTES_MAX as usize);
        }
        let own = rustix::system::uname();
        OwnNames::of(&own.nodename().to_string_lossy(), &String::from_utf8_lossy(&hosts))
    }

    /// Those of a machine of this name with such a list: names in a line with that name, and names without a dot that
    /// stand for the machine itself. Others may be somebody's: such lists are also used to keep pages of certain
    /// sites from being loaded.
    fn of(own: &str, hosts: &str) -> OwnNames {
        let own = own.to_ascii_lowercase();
        // Every machine is called that by itself: it says nothing of the others in its line.
        let is_named = own != "localhost" && !own.starts_with("localhost.");
        let mut names = Vec::new();
        for line in hosts.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace().map(str::to_ascii_lowercase);
            let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
            let Some(address) = address else { continue };
            let of_line: Vec<String> = words.collect();
            let is_own = is_named && of_line.contains(&own);
            let is_loopback = address.to_canonical().is_loopback();
            let kept = |name: &String| is_own || (is_loopback && !name.contains('.'));
            names.extend(of_line.into_iter().filter(kept));
        }
        names.push(own);
        names.sort_unstable();
        names.dedup();
        OwnNames(names)
    }

    /// Whether the header `Host` names this machine as itself; who sends none is no browser.
    pub(super) fn has(&self, host: Option<&str>) -> bool {
        let Some(host) = host else { return true };
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, port),
            _ => (host, ""),
        };
        // An address of version 6 stands in brackets, since it has colons of its own.
        let address = if port.is_empty() { host } else { name };
        let address = address.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = address.parse::<IpAddr>() {
            return address.to_canonical().is_loopback();
        }
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        name.is_empty()
            || name == "localhost"
            || name.ends_with(".localhost")
            || self.0.binary_search(&name).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_are_known() {
        let own = rustix::system::uname().nodename().to_str().unwrap().to_owned();
        let names = OwnNames::read();
        for host in [
            "localhost",
            "LOCALHOST:15672",
            "localhost.",
            "broker.localhost:1",
            "127.0.0.1",
            "127.9.9.9:15672",
            "[::1]:15672",
            "[::1]",
            "",
            ":15672",
            &own,
            &format!("{own}:15672"),
        ] {
            assert!(names.has(Some(host)), "{host}");
        }
        assert!(names.has(None));
        for host in [
            "example.com",
            "example.com:15672",
            "localhost.example.com",
            "127.0.0.1.example.com",
            "10.0.0.1",
            "[2001:db8::1]:15672",
            "?",
            "notlocalhost",
        ] {
            assert!(!names.has(Some(host)), "{host}");
        }
    }

    #[test]
    fn of_the_systems_list_those_are_taken_that_no_other_site_can_have() {
        let hosts = "# names\n127.0.0.1 localhost dev # mine\n::1 ip6-localhost\n10.0.0.7\tBox.example.org box\n\
                     127.0.0.1 ads.example.com tracker.example\n0.0.0.0 blocked\n10.0.0.9 db db.example.org\nnonsense x\n";
        let names = OwnNames::of("Box", hosts);
        for host in ["box", "BOX.example.org:15672", "dev", "ip6-localhost:1"] {
            assert!(names.has(Some(host)), "{host}");
        }
        for host in ["ads.example.com", "tracker.example", "blocked", "db", "db.example.org", "x"] {
            assert!(!names.has(Some(host)), "{host}");
        }
        assert!(OwnNames::of("box", "").has(Some("box")));
    }

    #[test]
    fn a_machine_called_as_all_are_owns_no_other_names() {
        let hosts =
            "127.0.0.1 localhost localhost.localdomain ads.example.com\n10.0.0.7 localhost db\n";
        for own in ["localhost", "localhost.localdomain"] {
            let names = OwnNames::of(own, hosts);
            assert!(names.has(Some("localhost")) && names.has(Some(own)));
            for host in ["ads.example.com", "db"] {
                assert!(!names.has(Some(host)), "{host} of {own}");
            }
        }
    }

    #[test]
    fn a_line_that_was_cut_is_left_out() {
        let cut = |text: &str, most: usize| {
            let mut hosts = text.as_bytes()[..most.min(text.len())].to_vec();
            drop_cut_line(&mut hosts, most);
            String::from_utf8(hosts).unwrap()
        };
        let text = "127.0.0.1 a\n127.0.0.1 devbox";
        assert_eq!(cut(text, 25), "127.0.0.1 a\n");
        assert_eq!(cut(text, 100), text);
        assert_eq!(cut("127.0.0.1 devbox", 13), "");
        assert_eq!(cut("127.0.0.1 a\nx", 12), "127.0.0.1 a\n");
    }
}
