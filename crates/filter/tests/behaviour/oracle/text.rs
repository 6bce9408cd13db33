//! Strings: code points, and bytes that are part of none, which count as one each.

/// What a string is made of.
pub fn units(text: &[u8]) -> Vec<Result<char, u8>> {
    let mut units = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.len().min(4);
        let found = (1..=end).find_map(|length| {
            let character = std::str::from_utf8(&rest[..length]).ok()?.chars().next()?;
            Some((character, length))
        });
        match found {
            Some((character, length)) => {
                units.push(Ok(character));
                rest = &rest[length..];
            }
            None => {
                units.push(Err(rest[0]));
                rest = &rest[1..];
            }
        }
    }
    units
}

/// The units from a place (from 1) on, at most so many of the places behind it.
pub fn part(text: &[u8], from: i128, count: Option<i128>) -> Vec<u8> {
    let end = count.map_or(i128::MAX, |count| from.saturating_add(count));
    let mut part = Vec::new();
    for (index, unit) in units(text).into_iter().enumerate() {
        let place = index as i128 + 1;
        if place >= from && place < end {
            match unit {
                Ok(character) => part.extend(character.to_string().bytes()),
                Err(byte) => part.push(byte),
            }
        }
    }
    part
}

fn mapped(text: &[u8], map: impl Fn(char) -> String) -> Vec<u8> {
    let mut out = Vec::new();
    for unit in units(text) {
        match unit {
            Ok(character) => out.extend(map(character).bytes()),
            Err(byte) => out.push(byte),
        }
    }
    out
}

pub fn lower(text: &[u8]) -> Vec<u8> {
    mapped(text, |character| character.to_lowercase().collect())
}

pub fn upper(text: &[u8]) -> Vec<u8> {
    mapped(text, |character| character.to_uppercase().collect())
}

/// Simple case folding.
fn fold(unit: Result<char, u8>) -> Result<char, u8> {
    let only = |text: String, character: char| {
        let mut characters = text.chars();
        let first = characters.next().unwrap_or(character);
        if characters.next().is_none() { first } else { character }
    };
    unit.map(|character| {
        if character == 'ı' {
            return character;
        }
        let upper = only(character.to_uppercase().collect(), character);
        only(upper.to_lowercase().collect(), upper)
    })
}

enum Wild {
    Any,
    One,
    Exactly(char),
}

/// All ways to match a pattern are tried at once: `reached[i]` says whether the pattern so far takes the first `i` units.
pub fn like(text: &[u8], pattern: &str, escape: Option<char>, folded: bool) -> bool {
    let fold = |unit| if folded { fold(unit) } else { unit };
    let mut wild = Vec::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        wild.push(match character {
            _ if Some(character) == escape => {
                Wild::Exactly(characters.next().expect("the parser checked it"))
            }
            '%' => Wild::Any,
            '_' => Wild::One,
            _ => Wild::Exactly(character),
        });
    }
    let units: Vec<Result<char, u8>> = units(text).into_iter().map(fold).collect();
    let mut reached = vec![false; units.len() + 1];
    reached[0] = true;
    for wild in wild {
        let mut next = vec![false; units.len() + 1];
        for (index, from) in reached.iter().enumerate() {
            if !from {
                continue;
            }
            match wild {
                Wild::Any => next[index..].fill(true),
                Wild::One if index < units.len() => next[index + 1] = true,
                Wild::Exactly(character) if units.get(index) == Some(&fold(Ok(character))) => {
                    next[index + 1] = true;
                }
                _ => {}
            }
        }
        reached = next;
    }
    reached[units.len()]
}
