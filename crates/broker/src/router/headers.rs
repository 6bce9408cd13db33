//! Headers exchanges: bindings whose arguments are compared with the message's headers.

use crate::binding::{Bindings, Link};
use crate::refusal::Refusal;
use alloc::format;
use alloc::string::String;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::properties::PropertiesRef;
use lepus_amqp::table::{Table, TableRef, Value, ValueRef};

/// What `x-match` asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mode {
    any: bool,
    /// Names that begin with `x-` are compared too.
    with_x: bool,
}

impl Mode {
    fn parse(text: &[u8]) -> Option<Mode> {
        let (any, with_x) = match text {
            b"all" => (false, false),
            b"any" => (true, false),
            b"all-with-x" => (false, true),
            b"any-with-x" => (true, true),
            _ => return None,
        };
        Some(Mode { any, with_x })
    }

    fn of(arguments: &Table) -> Mode {
        let text = arguments.get("x-match").and_then(Value::as_text);
        text.and_then(|text| Mode::parse(text.as_bytes()))
            .unwrap_or(Mode { any: false, with_x: false })
    }
}

/// Whether `x-match`, if given, is one of the four known words.
///
/// # Errors
/// 406 otherwise.
pub(crate) fn check_arguments(arguments: &Table) -> Result<(), Refusal> {
    let text = match arguments.get("x-match") {
        None => return Ok(()),
        Some(Value::LongString(text)) if Mode::parse(text).is_some() => return Ok(()),
        Some(Value::LongString(text)) => format!(
            "Invalid x-match field value '{}'; expected all, any, all-with-x, or any-with-x",
            String::from_utf8_lossy(text)
        ),
        Some(other) => {
            format!("Invalid x-match field type {}; expected longstr", other.type_name())
        }
    };
    Err(Refusal::new(ReplyCode::PRECONDITION_FAILED, text))
}

/// Emits the bindings that fit the message.
pub(super) fn select(
    links: &[Link],
    bindings: &Bindings,
    properties: PropertiesRef<'_>,
    mut emit: impl FnMut(&[Link]),
) {
    if links.is_empty() {
        return;
    }
    let headers = properties.headers().unwrap_or_default();
    for link in links {
        let arguments = bindings.get(link.binding).arguments.as_deref();
        if fits(arguments, headers) {
            emit(core::slice::from_ref(link));
        }
    }
}

/// Whether a binding with these arguments fits the headers. Without anything to compare, `all`
/// fits every message and `any` none.
fn fits(arguments: Option<&Table>, headers: TableRef<'_>) -> bool {
    let Some(arguments) = arguments else {
        return true;
    };
    let mode = Mode::of(arguments);
    let mut compared = arguments
        .iter()
        .filter(|(name, _)| *name != "x-match" && (mode.with_x || !name.starts_with("x-")));
    let is_met = |(name, wanted): (&str, &Value)| {
        headers
            .get(name)
            .is_some_and(|given| matches!(wanted, Value::Void) || is_equal(wanted, given))
    };
    if mode.any { compared.any(is_met) } else { compared.all(is_met) }
}

/// Typed equality: integers of any width among each other, floats of both widths, everything else
/// with its own type.
fn is_equal(wanted: &Value, given: ValueRef<'_>) -> bool {
    match (wanted, given) {
        (Value::LongString(one), ValueRef::LongString(two))
        | (Value::Binary(one), ValueRef::Binary(two)) => one == two,
        (Value::Bool(one), ValueRef::Bool(two)) => *one == two,
        (Value::F32(one), ValueRef::F32(two)) => *one == two,
        (Value::F64(one), ValueRef::F64(two)) => *one == two,
        (Value::F32(one), ValueRef::F64(two)) => f64::from(*one) == two,
        (Value::F64(one), ValueRef::F32(two)) => *one == f64::from(two),
        (Value::Timestamp(one), ValueRef::Timestamp(two)) => *one == two,
        (Value::U64(one), ValueRef::U64(two)) => *one == two,
        (Value::Array(_), ValueRef::Array(_)) | (Value::Table(_), ValueRef::Table(_)) => {
            given.to_owned() == *wanted
        }
        (
            Value::Decimal { scale, value },
            ValueRef::Decimal { scale: other_scale, value: other },
        ) => (*scale, *value) == (other_scale, other),
        _ => match (wanted.as_integer(), given.as_integer()) {
            (Some(one), Some(two)) => one == two,
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(arguments: &Table, headers: &Table) -> bool {
        let bytes = headers.to_bytes();
        fits(Some(arguments), bytes.as_ref())
    }

    #[test]
    fn all_needs_every_field_and_any_needs_one() {
        let both = Table::new().with("a", 1i32).with("b", "two");
        let all = both.clone().with("x-match", "all");
        let any = both.clone().with("x-match", "any");
        let one = Table::new().with("b", "two").with("c", true);
        assert!(fit(&both, &both) && fit(&all, &both) && fit(&any, &both));
        assert!(!fit(&both, &one) && !fit(&all, &one));
        assert!(fit(&any, &one));
        assert!(!fit(&any, &Table::new().with("c", true)));
    }

    #[test]
    fn nothing_to_compare_fits_all_and_no_any() {
        assert!(fit(&Table::new().with("x-match", "all"), &Table::new()));
        assert!(!fit(&Table::new().with("x-match", "any"), &Table::new()));
        assert!(fits(None, TableRef::default()));
    }

    #[test]
    fn names_with_x_count_only_where_asked() {
        let plain = Table::new().with("x-match", "all").with("x-a", 1i32);
        let with_x = Table::new().with("x-match", "all-with-x").with("x-a", 1i32);
        let any_x = Table::new().with("x-match", "any-with-x").with("x-a", 1i32);
        assert!(fit(&plain, &Table::new()));
        assert!(!fit(&with_x, &Table::new()) && !fit(&any_x, &Table::new()));
        let headers = Table::new().with("x-a", 1i32);
        assert!(fit(&with_x, &headers) && fit(&any_x, &headers));
    }

    #[test]
    fn void_asks_for_presence() {
        let wanted = Table::new().with("a", Value::Void);
        assert!(fit(&wanted, &Table::new().with("a", 5i32)));
        assert!(fit(&wanted, &Table::new().with("a", Value::Void)));
        assert!(!fit(&wanted, &Table::new().with("b", 5i32)));
    }

    #[test]
    fn values_are_compared_with_their_kind() {
        let fields = |value: Value| Table::new().with("a", value);
        let same = |one: Value, two: Value| fit(&fields(one), &fields(two));
        assert!(same(Value::I8(7), Value::I64(7)) && same(Value::U16(7), Value::I32(7)));
        assert!(!same(Value::I32(7), Value::from("7")));
        assert!(!same(Value::I32(1), Value::Bool(true)));
        assert!(!same(Value::from("a"), Value::Binary(b"a".to_vec())));
        assert!(same(Value::F32(0.5), Value::F64(0.5)));
        assert!(!same(Value::I32(1), Value::F64(1.0)));
        assert!(same(Value::U64(u64::MAX), Value::U64(u64::MAX)));
        assert!(!same(Value::U64(u64::MAX), Value::I64(-1)));
        let nested = Value::Table(fields(Value::Array([Value::Bool(true)].to_vec())));
        assert!(same(nested.clone(), nested.clone()));
        assert!(!same(nested, Value::Table(Table::new())));
    }

    #[test]
    fn other_words_for_x_match_are_refused() {
        let check = |value: Value| check_arguments(&Table::new().with("x-match", value));
        assert!(check_arguments(&Table::new()).is_ok());
        for word in ["all", "any", "all-with-x", "any-with-x"] {
            assert!(check(word.into()).is_ok());
        }
        for value in [Value::from("some"), Value::from(""), Value::I32(1), Value::Void] {
            let refusal = check(value).unwrap_err();
            assert_eq!(refusal.code, ReplyCode::PRECONDITION_FAILED);
            assert!(refusal.text.starts_with("Invalid x-match field"));
        }
    }
}
