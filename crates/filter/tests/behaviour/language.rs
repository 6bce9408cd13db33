//! Which texts are filters, how they are printed, and what is said about those that are none.

use crate::generate::Generator;
use lepus_base::Rng;
use lepus_filter::{Filter, Limits};

fn parse(text: &str) -> Result<Filter, String> {
    Filter::parse(text, &Limits::default()).map_err(|error| error.reply())
}

fn normal(text: &str) -> String {
    parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).normal().to_owned()
}

#[test]
fn one_thing_is_written_in_one_way() {
    let rows = [
        ("a.x=1 and(b.y!='it''s')", "x = 1 AND b.y <> 'it''s'"),
        ("((x)) or ((y or z))", "x OR y OR z"),
        ("(x or y) and z", "(x OR y) AND z"),
        ("not(not x)", "NOT NOT x"),
        ("NOT (x AND y)", "NOT (x AND y)"),
        ("not x = 1", "NOT x = 1"),
        ("(x = 1) = true", "(x = 1) = TRUE"),
        ("1+2*3-(4-5)", "1 + 2 * 3 - (4 - 5)"),
        ("(1+2)*3/(4/5)", "(1 + 2) * 3 / (4 / 5)"),
        ("-(-x)", "-(-x)"),
        ("- 5 + +6 - -(7)", "-5 + 6 - -7"),
        ("-(-5)", "5"),
        ("+(-x)", "+(-x)"),
        ("1 - -5", "1 - -5"),
        (
            "-9223372036854775808 < 18446744073709551615",
            "-9223372036854775808 < 18446744073709551615",
        ),
        ("0x1F = 31L", "31 = 31"),
        ("10. = .5e1 or 1E3 = 5f", "10.0 = 5.0 OR 1000.0 = 5.0"),
        ("1.7976931348623157e308 > 5e-324", "1.7976931348623157e308 > 5e-324"),
        ("body.items[0].[odd name] is null", "b.items[0].[odd name] IS NULL"),
        ("b['x]y'].55 Is Not Missing", "b['x]y'].55 IS NOT MISSING"),
        ("b[0].x is true", "b[0].x IS TRUE"),
        ("any(b[*]) = 1", "ANY(b[*]) = 1"),
        ("any(b.tags[*]) = 1", "ANY(b.tags) = 1"),
        ("ALL(b.a[*].c[*].d) not in (1,'x')", "ALL(b.a[*].c[*].d) NOT IN (1, 'x')"),
        ("any(tags) like 'x%'", "ANY(tags) LIKE 'x%'"),
        ("any(a.tags[*].x) between 1 and 2", "ANY(a.tags[*].x) BETWEEN 1 AND 2"),
        ("headers.[not] = [is]", "a.not = a.is"),
        ("application-properties.k = application_properties.k.l", "k = a.k.l"),
        ("properties.message-id = p.message_id", "p.message_id = p.message_id"),
        ("p.timestamp-1 > 0", "p.timestamp - 1 > 0"),
        ("header.priority = JMSPriority", "h.priority = h.priority"),
        ("JMSTimestamp > 0 and JMSType = 'x'", "JMSTimestamp > 0 AND p.type = 'x'"),
        ("a.JMSType = 'x'", "a.JMSType = 'x'"),
        ("x not between 1 and 2 and y", "x NOT BETWEEN 1 AND 2 AND y"),
        ("x like 'a!_%' escape '!'", "x LIKE 'a!_%' ESCAPE '!'"),
        ("x ilike 'É'", "x ILIKE 'É'"),
        ("x regexp '^a+$'", "x REGEXP '^a+$'"),
        ("date('2026-01-31') > utc()", "DATE('2026-01-31T00:00:00Z') > NOW()"),
        ("exists(b.x) and exists(p.type)", "b.x IS NOT MISSING AND p.type IS NOT NULL"),
        ("substring(x,2)=coalesce(y,'z')", "SUBSTRING(x, 2) = COALESCE(y, 'z')"),
        ("between between any and missing", "between BETWEEN any AND missing"),
        ("escape like 'x' and regexp = ilike", "escape LIKE 'x' AND regexp = ilike"),
        ("date = now and lower > upper", "date = now AND lower > upper"),
        ("größe = 'ü'", "größe = 'ü'"),
        ("x is\tnull\x0c\r\n", "x IS NULL"),
        ("'x'='x'and y", "'x' = 'x' AND y"),
    ];
    for (text, expected) in rows {
        assert_eq!(normal(text), expected, "{text}");
        let tree = parse(text).unwrap();
        assert_eq!(parse(expected).unwrap().tree(), tree.tree(), "{text}");
    }
}

#[test]
fn what_is_no_filter_is_refused_at_its_place() {
    let rows = [
        ("", "at character 1: expected a value"),
        ("   ", "at character 4: expected a value"),
        ("b.price >", "at character 10: expected a value after '>'"),
        ("ü = 'x' AND", "at character 12: expected a value after 'AND'"),
        ("x = 1 y", "at character 7: expected AND, OR or the end after '1'"),
        ("x = 1 = 2", "at character 7: expected AND, OR or the end after '1'"),
        ("x is null is null", "at character 11: expected AND, OR or the end after 'null'"),
        ("(x = 1", "at character 7: expected ')' after '1'"),
        ("x IN ()", "at character 7: expected a value after '('"),
        ("x IN (1 2)", "at character 9: expected ',' or ')' after '1'"),
        ("x NOT 5", "at character 7: expected BETWEEN, IN, LIKE, ILIKE or REGEXP after 'NOT'"),
        ("x BETWEEN 1, 2", "at character 12: expected AND and the upper bound after '1'"),
        ("x LIKE y", "at character 8: expected a pattern in quotes after 'LIKE'"),
        ("x LIKE 'a' ESCAPE 'ab'", "at character 19: ESCAPE takes one character"),
        ("x LIKE 'a!' ESCAPE '!'", "at character 8: the pattern ends with its escape character"),
        ("x IS 5", "at character 6: expected NULL, MISSING, TRUE or FALSE after 'IS'"),
        (
            "x = \"a\"",
            "at character 5: write 'text' for a string and [name] for a field: \"…\" could be either",
        ),
        ("x = 'a", "at character 5: the string has no end"),
        ("[x", "at character 1: the name in brackets has no end"),
        ("x # 1", "at character 3: unexpected character '#'"),
        ("!!!", "at character 1: unexpected character '!'"),
        (
            "x = 1.e",
            "at character 5: the number '1' cannot be read or lies outside -2^63 … 2^64 - 1",
        ),
        (
            "x = 18446744073709551616",
            "at character 5: the number '18446744073709551616' cannot be read \
            or lies outside -2^63 … 2^64 - 1",
        ),
        (
            "x = 1e999",
            "at character 5: the number '1e999' cannot be read or lies outside -2^63 … 2^64 - 1",
        ),
        (
            "x = 5x",
            "at character 5: the number '5x' cannot be read or lies outside -2^63 … 2^64 - 1",
        ),
        (
            "x = 0x",
            "at character 5: the number '0x' cannot be read or lies outside -2^63 … 2^64 - 1",
        ),
        ("p.nothing = 1", "at character 1: properties has no field 'nothing'"),
        ("header.invalid", "at character 1: header has no field 'invalid'"),
        ("p.subject IS NULL", "at character 1: properties has no field 'subject'"),
        (
            "d.abc",
            "at character 1: 'd.' begins with no section: write a.d.… for a field of a header's table, \
            a.[d.…] for a header with dots in its name, b.d.… for the body",
        ),
        (
            "x = 1 AND tags[0] = 'a'",
            "at character 11: 'tags[' begins with no section: write a.tags[…] for an element of a header's array, \
            b.tags[…] for the body",
        ),
        (
            "[odd name]['x'] = 1",
            "at character 1: '[odd name][' begins with no section: write a.[odd name][…] for an element of a header's \
            array, b.[odd name][…] for the body",
        ),
        ("b. = 1", "at character 3: expected a name after 'b.'"),
        ("p. = 1", "at character 3: expected a name after 'properties'"),
        ("b.x[y]", "at character 5: expected an index, a 'name' or * after '['"),
        ("b.x[1", "at character 4: the bracket has no end"),
        ("b.x[*] = 1", "at character 1: [*] stands only in ANY(…) and ALL(…)"),
        ("a[0] = 1", "at character 1: the headers table has no indexes: a name comes first"),
        ("ANY(a[*]) = 1", "at character 5: the headers table has no elements: a name comes first"),
        (
            "ANY(headers[*].x) = 1",
            "at character 5: the headers table has no elements: a name comes first",
        ),
        ("ANY(5) = 1", "at character 5: expected a path after '('"),
        ("ANY(b.x)", "at character 9: expected a comparison after ')'"),
        ("ANY(b.x) IS NULL", "at character 10: expected a comparison after ')'"),
        ("FOO(x) = 1", "at character 1: there is no function 'FOO'"),
        ("LOWER() = 1", "at character 1: LOWER takes one string"),
        ("LEFT(x) = 1", "at character 1: LEFT takes a string and a number"),
        ("SIZE('x') = 1", "at character 1: SIZE takes one path"),
        (
            "DATE('soon') = 1",
            "at character 6: write a point of time as '2026-01-31T00:00:00Z' or '2026-01-31'",
        ),
        ("x REGEXP '('", "at character 10: the regular expression is refused: unclosed group"),
        (
            "x REGEXP '(?=a)'",
            "at character 10: the regular expression is refused: look-around, including \
            look-ahead and look-behind, is not supported",
        ),
        (
            "x REGEXP '\\w{900}'",
            "at character 10: the regular expression is refused: it is too large when compiled",
        ),
        ("AND NOT", "at character 1: expected a value"),
        ("--x = 1", "at character 2: expected a value after '-'"),
    ];
    for (text, expected) in rows {
        assert_eq!(parse(text).unwrap_err(), expected, "{text}");
    }
}

#[test]
fn limits_are_those_that_are_given() {
    let refused = |text: &str| parse(text).unwrap_err();
    let nested = |levels: usize| format!("{}x{}", "(".repeat(levels), ")".repeat(levels));
    assert!(parse(&nested(64)).is_ok());
    assert!(refused(&nested(65)).ends_with("more than 64 levels"));
    assert!(refused(&nested(5000)).ends_with("more than 64 levels"));
    assert!(refused(&format!("{}x", "NOT ".repeat(100))).ends_with("more than 64 levels"));
    assert!(parse(&format!("x = 1{}", "+1".repeat(60))).is_ok());
    assert!(refused(&format!("x = 1{}", "+1".repeat(70))).ends_with("more than 64 levels"));
    assert!(
        refused(&format!("x = {}1{}", "ABS(".repeat(70), ")".repeat(70)))
            .ends_with("more than 64 levels")
    );
    assert!(refused(&format!("x = '{}'", "y".repeat(16_384))).ends_with("more than 16384 bytes"));
    assert!(parse(&format!("x{}", " OR x".repeat(999))).is_ok());
    assert!(refused(&format!("x{}", " OR x".repeat(1000))).ends_with("more than 2000 tokens"));
    assert!(
        parse(&format!("x IN (1{})", ",1".repeat(5000))).is_ok(),
        "values have a limit of their own"
    );
    assert!(refused(&format!("x IN (1{})", ",y".repeat(1000))).ends_with("more than 2000 tokens"));
    let large = Limits { text_bytes_max: 1 << 20, ..Limits::default() };
    let values = |count: usize| format!("x IN (1{})", ",1".repeat(count - 1));
    assert!(Filter::parse(&values(10_000), &large).is_ok());
    let error = Filter::parse(&values(10_001), &large).unwrap_err();
    assert!(error.reply().ends_with("more than 10000 values of IN"), "{error:?}");
    assert!(
        refused(&format!("x LIKE 'a'{}", " OR x LIKE 'a'".repeat(16)))
            .ends_with("more than 16 LIKE")
    );
    assert!(
        refused(&format!("x REGEXP 'a'{}", " OR x REGEXP 'a'".repeat(4)))
            .ends_with("more than 4 REGEXP")
    );
    let cheap = Limits { cost_max: 200, ..Limits::default() };
    let error = Filter::parse("x REGEXP 'a'", &cheap).unwrap_err();
    assert!(error.reply().ends_with("more than 200 units of cost"), "{error:?}");
}

#[test]
fn whatever_is_printed_is_read_as_the_same_tree() {
    let mut generator = Generator::new(Rng::new(1));
    for _ in 0..20_000 {
        let text = generator.filter();
        let filter = parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let again = parse(filter.normal()).unwrap_or_else(|error| panic!("{filter}: {error}"));
        assert_eq!(again.tree(), filter.tree(), "{text}");
        assert_eq!(again.normal(), filter.normal(), "{text}");
    }
}

#[test]
fn a_bracket_behind_a_keyword_begins_a_name() {
    assert_eq!(normal("x = 1 AND[y] = 2 OR NOT[z]"), normal("x = 1 AND y = 2 OR NOT z"));
}

#[test]
fn no_text_makes_the_parser_panic() {
    let mut rng = Rng::new(2);
    let mut generator = Generator::new(Rng::new(3));
    for _ in 0..20_000 {
        let mut bytes = generator.filter().into_bytes();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(3) {
                0 => drop(bytes.remove(at)),
                1 => bytes[at] = rng.below(128) as u8,
                _ => bytes.truncate(at.max(1)),
            }
            if bytes.is_empty() {
                bytes.push(b'x');
            }
        }
        if let Ok(text) = String::from_utf8(bytes)
            && let Ok(filter) = parse(&text)
        {
            assert_eq!(parse(filter.normal()).unwrap().tree(), filter.tree(), "{text}");
        }
    }
}
