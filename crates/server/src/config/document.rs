//! The table as documentation: `docs/configuration.md` and the help of `lepus serve`.

use super::{SECTIONS, SETTINGS, Setting};

/// The whole of `docs/configuration.md`.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::from(
        "# Configuration\n\n\
         Every setting has one key. It can be written in a TOML file (`lepus serve --config lepus.toml`, or\n\
         `LEPUS_CONFIG=lepus.toml`), in an environment variable or as a flag of `lepus serve`. A flag wins over the\n\
         environment, the environment over the file, the file over the default. A key or value that is not accepted\n\
         stops the start with its place and what would be accepted. `lepus config` prints what is in force.\n\n\
         ```toml\n\
         data_dir = \"/var/lib/lepus\"\n\
         shards = 4\n\n\
         [tls]\n\
         certificate = \"/etc/lepus/server.pem\"\n\
         key = \"/etc/lepus/server.key\"\n\n\
         [limits]\n\
         body_bytes_max = \"16MiB\"\n\
         ```\n\n\
         This page is written by `lepus config document`.\n",
    );
    for (section, title) in SECTIONS {
        out.push_str(&format!("\n## {title}\n"));
        if !section.is_empty() {
            out.push_str(&format!("\nSection `[{section}]`.\n"));
        }
        for setting in SETTINGS.iter().filter(|one| one.section() == *section) {
            let or = |name: &str| format!(" or `{name}`");
            let short = setting.short.map_or(String::new(), or);
            let short_variable = setting.short_variable().map_or(String::new(), |name| or(&name));
            out.push_str(&format!(
                "\n### `{}`\n\n{}\n\n- default: {}\n- accepted: {}\n- flag `{}`{short}, environment `{}`{short_variable}\n",
                setting.key,
                setting.help,
                default(setting, "`"),
                setting.kind.accepted(),
                setting.flag(),
                setting.variable(),
            ));
        }
    }
    out
}

/// The settings as they stand in the help of `lepus serve`, at most `width` columns wide.
#[must_use]
pub fn help(width: usize) -> String {
    let mut out = String::new();
    for (section, title) in SECTIONS {
        out.push_str(&format!("\n{title}:\n"));
        for setting in SETTINGS.iter().filter(|one| one.section() == *section) {
            let short = setting.short.map_or(String::new(), |short| format!(", {short}"));
            out.push_str(&format!("  {}{short} <VALUE>\n", setting.flag()));
            let text = format!(
                "{} [default: {}] [{}]",
                setting.help,
                default(setting, ""),
                setting.kind.accepted()
            );
            wrap(&text, 10, width, &mut out);
        }
    }
    out
}

fn default(setting: &Setting, mark: &str) -> String {
    match setting.default {
        "" => "none".to_owned(),
        default => format!("{mark}{default}{mark}"),
    }
}

fn wrap(text: &str, indent: usize, width: usize, out: &mut String) {
    let mut column = 0;
    for word in text.split(' ') {
        if column > 0 && column + 1 + word.len() > width {
            out.push('\n');
            column = 0;
        }
        if column == 0 {
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.len();
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_flag_within_its_width() {
        let help = help(90);
        for setting in SETTINGS {
            assert!(help.contains(&setting.flag()), "{}", setting.key);
        }
        for line in help.lines() {
            assert!(line.len() <= 90, "{line}");
        }
    }

    #[test]
    fn the_page_in_the_repository_is_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            page == markdown(),
            "docs/configuration.md is out of date: lepus config document > docs/configuration.md"
        );
    }
}
