//! The checks of a publish that do not depend on where it goes, in the order that clients see.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;

use lepus_amqp::properties::{Change, Edit, PropertiesRef};
use lepus_amqp::table::Table;

use crate::channel::At;
use crate::channel::routes::Allowed;
use crate::directory::{Access, Resource};
use crate::effort::KEY_STEPS;
use crate::properties::{BCC, CC, mark_keys};
use crate::publish::{Checked, LOOKED_AT, parse_expiration};
use crate::refusal::{Refusal, RefusalKind};
use crate::reply_to::{REPLY_TO, token};
use crate::session::Publish;
use crate::sessions::SessionSide;

impl SessionSide<'_> {
    pub(crate) fn check_publish<'a>(
        &mut self,
        at: At,
        publish: &Publish<'a>,
        flags: u16,
    ) -> Result<Checked<'a>, Refusal> {
        let exchange = publish.exchange;
        let version = self.directory.version();
        let connection = &mut self.connections[at.slot];
        let routes = connection.incarnation(at.channel.channel).and_then(|it| it.routes.as_ref());
        let allowed = match routes.and_then(|routes| routes.allowed(version, exchange)) {
            Some(allowed) => allowed,
            None => self.allow_publish(at, exchange)?,
        };
        let connection = &self.connections[at.slot];
        let user = &*connection.user;
        let properties = PropertiesRef(publish.properties);
        let mut checked = Checked::plain(publish.properties, 0);
        let check_key = |key: &str| match allowed.has_topic_rules {
            true => self.directory.authorize_topic(user, at.vhost, exchange, Access::Write, key),
            false => Ok(()),
        };
        if flags & LOOKED_AT == 0 {
            check_key(publish.routing_key)?;
            return Ok(checked);
        }
        checked.priority = properties.priority().unwrap_or(0);
        let mut edit = Edit::default();
        let reply_token;
        if properties.reply_to() == Some(REPLY_TO.as_bytes()) {
            let consumes = connection
                .channel(at.channel.number())
                .is_some_and(|channel| channel.reply_consumer.is_some());
            if !consumes {
                let text = "fast reply consumer does not exist";
                return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
            }
            reply_token = token(&self.shard.settings.secret, at.channel);
            edit.reply_to = Change::Set(reply_token.as_bytes());
        }
        checked.expiration = match properties.expiration() {
            None => None,
            Some(text) => Some(parse_expiration(text)?),
        };
        let stored = checked.read_headers(properties, allowed.is_delayed)?;
        let headers = stored.as_ref().map(Table::to_bytes);
        if let Some(headers) = &headers {
            edit.headers = Change::Set(headers.as_ref());
        }
        let keys_max = self.shard.limits.copy_keys_max;
        if checked.extra_keys.len() > keys_max {
            let text = format!(
                "message with {} further routing keys in headers '{CC}' and '{BCC}'; {keys_max} are \
                 allowed",
                checked.extra_keys.len()
            );
            return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        let keys = checked.extra_keys.len() as u32;
        self.shard.effort.spend(keys.saturating_mul(KEY_STEPS));
        for key in core::iter::once(publish.routing_key)
            .chain(checked.extra_keys.iter().map(String::as_str))
        {
            check_key(key)?;
        }
        if let Some(claimed) = properties.user_id()
            && claimed != user.as_bytes()
            && !self.directory.user(user).is_some_and(|user| user.has_tag("impersonator"))
        {
            let claimed = String::from_utf8_lossy(claimed);
            let text =
                format!("user_id property set to '{claimed}' but authenticated user was '{user}'");
            return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        if edit != Edit::default()
            && let Ok(mut rewritten) = properties.rewrite(&edit)
        {
            if stored.is_some_and(|headers| headers.get(BCC).is_some()) {
                mark_keys(&mut rewritten);
            }
            checked.properties = Cow::Owned(rewritten);
        }
        Ok(checked)
    }

    /// Whether the client may publish to an exchange, which is remembered until the directory changes.
    #[cold]
    fn allow_publish(&mut self, at: At, exchange: &str) -> Result<Allowed, Refusal> {
        let connection = &mut self.connections[at.slot];
        let (user, accounts) = (&*connection.user, self.directory.accounts());
        accounts.authorize(user, at.vhost, Access::Write, Resource::Exchange(exchange))?;
        let info = self.directory.find_exchange(at.vhost, exchange)?;
        if info.internal {
            let vhost = self.directory.vhost_name(at.vhost);
            let text =
                format!("cannot publish to internal exchange '{exchange}' in vhost '{vhost}'");
            return Err(Refusal::new(RefusalKind::AccessRefused, text));
        }
        let has_topic_rules = accounts.has_topic_rules(user, at.vhost);
        let allowed = Allowed { is_delayed: info.delayed, has_topic_rules };
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel that publishes is there")
        };
        let routes = channel.routes.get_or_insert_default();
        routes.allow(self.directory.version(), exchange, allowed);
        connection.account_channel(at.channel.channel);
        Ok(allowed)
    }
}
