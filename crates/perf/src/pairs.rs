//! Values given as `key=value,key=value`: queue and consumer arguments, message properties.

use crate::option::{OptionError, wrong};
use lepus_amqp::{Properties, Table, Value};

/// Reads pairs into a table. Whole numbers become integers, `true` and `false` truth values, all else text.
pub(crate) fn table(option: &str, pairs: &[&str]) -> Result<Table, OptionError> {
    let mut table = Table::new();
    for (key, value) in split(option, pairs)? {
        table.insert(key, read(value));
    }
    Ok(table)
}

fn split<'a>(option: &str, pairs: &[&'a str]) -> Result<Vec<(&'a str, &'a str)>, OptionError> {
    let split = |pair: &&'a str| match pair.split_once('=') {
        Some((key, value)) if !key.is_empty() && key.len() <= 255 => Ok((key, value)),
        _ => wrong(format!("--{option} needs key=value, not '{pair}'")),
    };
    pairs.iter().map(split).collect()
}

fn read(value: &str) -> Value {
    if let Ok(number) = value.parse::<i64>() {
        return number.into();
    }
    match value {
        "true" => true.into(),
        "false" => false.into(),
        text => text.into(),
    }
}

/// Reads pairs into `properties`: the names of properties (`priority`, `contentType` or `content-type`) set these, all
/// others become headers.
pub(crate) fn set_properties(
    option: &str,
    pairs: &[&str],
    properties: &mut Properties,
) -> Result<(), OptionError> {
    for (key, value) in split(option, pairs)? {
        if value.len() > 255 {
            return wrong(format!("--{option}: the value of {key} is longer than 255 bytes"));
        }
        let octet = || match value.parse::<u8>() {
            Ok(number) => Ok(Some(number)),
            Err(_) => wrong(format!("--{option}: {key} needs a number up to 255, not '{value}'")),
        };
        let text = || Some(value.to_owned());
        let plain: String = key
            .chars()
            .filter(|c| !matches!(c, '-' | '_'))
            .map(|c| c.to_ascii_lowercase())
            .collect();
        match plain.as_str() {
            "contenttype" => properties.content_type = text(),
            "contentencoding" => properties.content_encoding = text(),
            "deliverymode" => properties.delivery_mode = octet()?,
            "priority" => properties.priority = octet()?,
            "correlationid" => properties.correlation_id = text(),
            "replyto" => properties.reply_to = text(),
            "expiration" => properties.expiration = text(),
            "messageid" => properties.message_id = text(),
            "type" => properties.message_type = text(),
            "userid" => properties.user_id = text(),
            "appid" => properties.app_id = text(),
            "clusterid" => properties.cluster_id = text(),
            "timestamp" => match value.parse() {
                Ok(seconds) => properties.timestamp = Some(seconds),
                Err(_) => {
                    return wrong(format!(
                        "--{option}: timestamp needs seconds since 1970, not '{value}'"
                    ));
                }
            },
            _ => properties.headers.get_or_insert_with(Table::new).insert(key, read(value)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_truths_are_told_from_texts() {
        let table = table(
            "queue-args",
            &["x-max-length=10", "x-lazy=true", "x-queue-type=quorum", "e=a=b"],
        );
        let table = table.unwrap();
        assert_eq!(table.get("x-max-length"), Some(&Value::I64(10)));
        assert_eq!(table.get("x-lazy"), Some(&Value::Bool(true)));
        assert_eq!(table.get("x-queue-type"), Some(&"quorum".into()));
        assert_eq!(table.get("e"), Some(&"a=b".into()));
    }

    #[test]
    fn what_is_no_pair_is_refused() {
        assert!(table("queue-args", &["x-max-length"]).is_err());
        assert!(table("queue-args", &["=5"]).is_err());
    }

    #[test]
    fn properties_are_known_by_name_and_the_rest_are_headers() {
        let mut properties = Properties::default();
        let pairs = ["priority=5", "contentType=text/plain", "app-id=me", "colour=red"];
        set_properties("message-properties", &pairs, &mut properties).unwrap();
        assert_eq!(properties.priority, Some(5));
        assert_eq!(properties.content_type.as_deref(), Some("text/plain"));
        assert_eq!(properties.app_id.as_deref(), Some("me"));
        let headers = properties.headers.unwrap();
        assert_eq!(headers.get("colour"), Some(&"red".into()));
        assert_eq!(headers.len(), 1);
    }

    #[test]
    fn property_values_must_fit() {
        let mut properties = Properties::default();
        for pair in ["priority=256", "deliveryMode=x", "timestamp=noon"] {
            assert!(set_properties("mp", &[pair], &mut properties).is_err(), "{pair}");
        }
        let long = format!("type={}", "x".repeat(256));
        assert!(set_properties("mp", &[&long], &mut properties).is_err());
    }
}
