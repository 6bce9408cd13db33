//! The table as documentation: `docs/configuration.md`, and what the help of `lepus serve` says of each setting.

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

/// What the help of `lepus serve` says of a setting.
#[must_use]
pub fn summary(setting: &Setting) -> String {
    let short = setting.short.map_or(String::new(), |short| format!(" [also: {short}]"));
    let (default, accepted) = (default(setting, ""), setting.kind.accepted());
    format!("{}{short} [default: {default}] [{accepted}]", setting.help)
}

/// What the section of a setting is about.
#[must_use]
pub fn title(setting: &Setting) -> &'static str {
    let section = SECTIONS.iter().find(|(section, _)| *section == setting.section());
    section.map_or("General", |(_, title)| *title)
}

fn default(setting: &Setting, mark: &str) -> String {
    match setting.default {
        "" => "none".to_owned(),
        default => format!("{mark}{default}{mark}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
