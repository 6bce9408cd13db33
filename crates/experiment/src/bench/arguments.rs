//! The command line: a command, then `--name value` pairs.

use std::str::FromStr;

/// The pairs that were given; every one of them must be asked for.
#[derive(Debug, Default)]
pub struct Arguments {
    pairs: Vec<(String, String)>,
}

impl Arguments {
    /// Reads the words behind the command.
    ///
    /// # Errors
    /// When a word is not a `--name` with a value behind it.
    pub fn read(words: impl IntoIterator<Item = String>) -> Result<Arguments, String> {
        let mut pairs = Vec::new();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("--") else {
                return Err(format!("`{word}` is not an option: options are `--name value`"));
            };
            let value = words.next().ok_or(format!("--{name} needs a value"))?;
            pairs.push((name.to_owned(), value));
        }
        Ok(Arguments { pairs })
    }

    /// Takes the value of `name`, or `preset`.
    ///
    /// # Errors
    /// When the value is not of that kind.
    pub fn take<T: FromStr>(&mut self, name: &str, preset: T) -> Result<T, String> {
        let Some(at) = self.pairs.iter().position(|(given, _)| given == name) else {
            return Ok(preset);
        };
        let (_, value) = self.pairs.remove(at);
        let parsed = value.parse();
        parsed.map_err(|_| format!("--{name} cannot be `{value}`"))
    }

    /// Takes the words of `name`, which are separated by commas or spaces.
    ///
    /// # Errors
    /// None; for the sake of one form.
    pub fn take_list(&mut self, name: &str) -> Result<Vec<String>, String> {
        let text: String = self.take(name, String::new())?;
        let words = text.split([',', ' ']).filter(|word| !word.is_empty());
        Ok(words.map(str::to_owned).collect())
    }

    /// Says what nobody asked for.
    ///
    /// # Errors
    /// When an option is left.
    pub fn finish(self) -> Result<(), String> {
        match self.pairs.first() {
            Some((name, _)) => Err(format!("there is no option --{name} here")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Arguments, String> {
        Arguments::read(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn pairs_are_taken_by_name() {
        let mut arguments = read("--rounds 3 --brokers lepus,null-broker").unwrap();
        assert_eq!(arguments.take("rounds", 5), Ok(3));
        assert_eq!(arguments.take("seconds", 10), Ok(10));
        let brokers = arguments.take_list("brokers").unwrap();
        assert_eq!(brokers, ["lepus", "null-broker"]);
        assert_eq!(arguments.finish(), Ok(()));
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(read("rounds 3").is_err());
        assert!(read("--rounds").is_err());
        let mut arguments = read("--rounds x").unwrap();
        assert!(arguments.take("rounds", 5).is_err());
        assert!(read("--other 1").unwrap().finish().is_err());
    }
}
