//! Filters and messages for them, and which of them go together. No broker is asked: this is what its verdicts are held
//! against.
//!
//! A message is a trade: a symbol, a price, a quantity. A filter asks for one of the symbols (it is *anchored*) or for
//! any, for a price between two bounds and a quantity below another. The bounds are drawn so that about as many filters
//! match a message as were asked for, whichever message it is: prices in all places are asked for as often.

use lepus_amqp::Table;
use lepus_base::Rng;

/// Prices are so many hundredths at most, quantities so many, both less one.
const RANGE: u32 = 1_000_000;

/// What filters look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookAt {
    /// Fields of the body, `b.sym`.
    Body,
    /// Headers, `sym`.
    Headers,
}

/// How a filter is written down in the arguments of a binding or consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// An expression as the argument `x-filter`.
    Filter,
    /// The same as the argument `x-filter-jms-selector`.
    JmsSelector,
    /// What a headers exchange compares: the symbol alone.
    HeadersExchange,
}

impl LookAt {
    /// Its name in options and figures.
    pub fn name(self) -> &'static str {
        match self {
            LookAt::Body => "body",
            LookAt::Headers => "headers",
        }
    }
}

impl Dialect {
    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Filter => "x-filter",
            Dialect::JmsSelector => "x-filter-jms-selector",
            Dialect::HeadersExchange => "headers-exchange",
        }
    }
}

/// What to draw.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Filters.
    pub count: u32,
    /// Share of the filters that ask for one symbol, 0 to 1.
    pub anchored: f64,
    /// Symbols of messages and filters, at least 1.
    pub symbols: u32,
    /// Ranges in each filter: 0, 1 (price) or 2 (quantity as well).
    pub ranges: u8,
    /// About so many filters should match a message.
    pub matches: f64,
    /// Different messages; they are published in turn.
    pub messages: u32,
    /// Decides filters and messages.
    pub seed: u64,
}

/// Different messages of a load.
const MESSAGES: u32 = 2_048;
/// With ranges, at least so many filters ask for a symbol for each that is to match: fewer could not be told apart by them.
const RIVALS: f64 = 4.0;

impl Wanted {
    /// As `lepus perf filters` draws them where nobody says otherwise: 2,048 messages, and as many symbols, up to 1,000, as leave
    /// each enough filters to match as often as is wanted.
    #[must_use]
    pub fn new(count: u32, anchored: f64, ranges: u8, matches: f64, seed: u64) -> Wanted {
        // Without ranges all filters of a symbol match its messages.
        let (rivals, most) = if ranges == 0 { (1.0, 1e6) } else { (RIVALS, 1e3) };
        let symbols = anchored * f64::from(count) / (matches * rivals).max(1e-6);
        let symbols = symbols.round().clamp(1.0, most) as u32;
        Wanted { count, anchored, symbols, ranges, matches, messages: MESSAGES, seed }
    }
}

/// One filter. Of those bounds that are there, all must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The number of the symbol.
    pub symbol: Option<u32>,
    /// In hundredths: the price is above the first and below the second.
    pub price: Option<(i32, i32)>,
    /// The quantity is below it.
    pub quantity_below: Option<u32>,
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trade {
    /// The number of its symbol.
    pub symbol: u32,
    /// In hundredths.
    pub price: u32,
    /// How many.
    pub quantity: u32,
}

/// Filters with the messages that they are to tell apart.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The filters.
    pub filters: Vec<Filter>,
    /// The messages.
    pub trades: Vec<Trade>,
    /// Filters that match each message, ascending.
    pub matching: Vec<Vec<u32>>,
}

impl Filter {
    /// Whether it matches `trade`.
    pub fn matches(&self, trade: &Trade) -> bool {
        self.symbol.is_none_or(|symbol| symbol == trade.symbol)
            && self
                .price
                .is_none_or(|(above, below)| (above + 1..below).contains(&(trade.price as i32)))
            && self.quantity_below.is_none_or(|bound| trade.quantity < bound)
    }

    /// The expression, which is the same in SQL filters and JMS selectors but for the names of the fields.
    pub fn text(&self, look_at: LookAt) -> String {
        let section = match look_at {
            LookAt::Body => "b.",
            LookAt::Headers => "",
        };
        let mut parts = Vec::new();
        if let Some(symbol) = self.symbol {
            parts.push(format!("{section}sym = '{}'", symbol_name(symbol)));
        }
        if let Some((above, below)) = self.price {
            parts.push(format!("{section}price > {}", decimal(above)));
            parts.push(format!("{section}price < {}", decimal(below)));
        }
        if let Some(bound) = self.quantity_below {
            parts.push(format!("{section}qty < {bound}"));
        }
        parts.join(" AND ")
    }

    /// What a binding or consumer with this filter has as arguments.
    pub fn arguments(&self, dialect: Dialect, look_at: LookAt) -> Table {
        let symbol = || self.symbol.map(symbol_name).unwrap_or_default();
        match dialect {
            Dialect::Filter | Dialect::JmsSelector => {
                Table::new().with(dialect.name(), self.text(look_at).as_str())
            }
            Dialect::HeadersExchange => {
                Table::new().with("x-match", "all").with("sym", symbol().as_str())
            }
        }
    }
}

impl Trade {
    /// A JSON object of `bytes` bytes, or `None` where the fields take more. It has fields that no filter asks for, before and
    /// behind the others, and is filled up by a text.
    pub fn json(&self, number: u32, bytes: usize) -> Option<Vec<u8>> {
        let side = if self.quantity.is_multiple_of(2) { "buy" } else { "sell" };
        let head = format!(
            r#"{{"id":{number},"account":"A-{:04}","side":"{side}","sym":"{}","price":{},"qty":{},"venue":"XLON","note":""#,
            self.price % 10_000,
            symbol_name(self.symbol),
            self.price_text(),
            self.quantity,
        );
        let filling = bytes.checked_sub(head.len() + 2)?;
        let words = "as agreed by telephone ".bytes().cycle().take(filling);
        Some(head.bytes().chain(words).chain(*b"\"}").collect())
    }

    /// The fields as headers.
    pub fn headers(&self) -> Table {
        Table::new()
            .with("sym", symbol_name(self.symbol).as_str())
            .with("price", f64::from(self.price) / 100.0)
            .with("qty", i64::from(self.quantity))
    }

    /// The price as it stands in a body.
    pub fn price_text(&self) -> String {
        decimal(self.price as i32)
    }
}

/// A symbol as filters and messages write it.
pub fn symbol_name(symbol: u32) -> String {
    format!("S{symbol:04}")
}

fn decimal(hundredths: i32) -> String {
    let sign = if hundredths < 0 { "-" } else { "" };
    let hundredths = hundredths.unsigned_abs();
    format!("{sign}{}.{:02}", hundredths / 100, hundredths % 100)
}

impl Workload {
    /// Draws what is wanted; the same seed draws the same.
    pub fn draw(wanted: &Wanted) -> Workload {
        let mut rng = Rng::new(wanted.seed);
        let filters = filters(wanted, &mut rng);
        let trades: Vec<Trade> = (0..wanted.messages)
            .map(|_| Trade {
                symbol: rng.below(u64::from(wanted.symbols)) as u32,
                price: rng.below(u64::from(RANGE)) as u32,
                quantity: rng.below(u64::from(RANGE)) as u32,
            })
            .collect();
        let matching = matching(&filters, &trades, wanted.symbols.max(1));
        Workload { filters, trades, matching }
    }

    /// How many filters match a message, on average.
    pub fn matches_mean(&self) -> f64 {
        let matches: usize = self.matching.iter().map(Vec::len).sum();
        matches as f64 / self.trades.len().max(1) as f64
    }
}

fn filters(wanted: &Wanted, rng: &mut Rng) -> Vec<Filter> {
    let anchored_before = |number: u32| (f64::from(number) * wanted.anchored).floor() as u32;
    // Each filter has the same part in the matches of a message; an anchored one has them among its symbol's only.
    let share = wanted.matches / f64::from(wanted.count.max(1));
    let of_range = |chance: f64| (chance * f64::from(RANGE)).round() as u32;
    let mut symbols: Vec<u32> = (0..wanted.symbols.max(1)).collect();
    let filter = |number: u32| {
        let before = anchored_before(number);
        let is_anchored = anchored_before(number + 1) > before;
        let chance = if is_anchored { share * f64::from(wanted.symbols) } else { share };
        let mut filter = Filter::default();
        if is_anchored {
            // Each symbol once before one comes again, so that all have as many; in another order each time, so that those of
            // one symbol do not come to the same few queues.
            let at = before as usize % symbols.len();
            let other = at as u64 + rng.below((symbols.len() - at) as u64);
            symbols.swap(at, other as usize);
            filter.symbol = Some(symbols[at]);
        }
        if wanted.ranges == 0 {
            return filter;
        }
        let chance = chance.clamp(0.0, 1.0);
        let mut of_price = chance;
        if wanted.ranges > 1 {
            // Quantities have chances from the lower one to 1, evenly: the price has the rest.
            let mean = if chance > 0.75 { chance } else { 0.75 };
            let lower = 2.0 * mean - 1.0;
            let of_quantity =
                lower + (1.0 - lower) * rng.below(1 << 20) as f64 / f64::from(1 << 20);
            filter.quantity_below = Some(of_range(of_quantity));
            of_price = chance / mean;
        }
        let width = of_range(of_price).max(1);
        let first = rng.below(u64::from(RANGE - width) + 1) as i32;
        filter.price = Some((first - 1, first + width as i32));
        filter
    };
    (0..wanted.count).map(filter).collect()
}

fn matching(filters: &[Filter], trades: &[Trade], symbols: u32) -> Vec<Vec<u32>> {
    let mut by_symbol: Vec<Vec<u32>> = vec![Vec::new(); symbols as usize];
    let mut of_any = Vec::new();
    for (number, filter) in (0u32..).zip(filters) {
        match filter.symbol {
            Some(symbol) => by_symbol[symbol as usize].push(number),
            None => of_any.push(number),
        }
    }
    let of = |trade: &Trade| {
        let candidates = by_symbol[trade.symbol as usize].iter().chain(&of_any);
        let matches = |number: &&u32| filters[**number as usize].matches(trade);
        let mut found: Vec<u32> = candidates.filter(matches).copied().collect();
        found.sort_unstable();
        found
    };
    trades.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Wanted {
        Wanted {
            count: 10_000,
            anchored: 0.9,
            symbols: 1_000,
            ranges: 2,
            matches: 1.0,
            messages: 2_048,
            seed: 7,
        }
    }

    #[test]
    fn as_many_match_as_were_asked_for() {
        for (anchored, ranges, matches) in
            [(0.9, 2, 1.0), (1.0, 2, 3.0), (0.0, 2, 1.0), (0.5, 1, 2.0), (1.0, 0, 10.0)]
        {
            let wanted = Wanted { anchored, ranges, matches, ..wanted() };
            let mean = Workload::draw(&wanted).matches_mean();
            // Drawn by chance: with 2,048 messages a mean of 1 is within a tenth of it.
            assert!((mean / matches - 1.0).abs() < 0.1, "{wanted:?}: {mean}");
        }
    }

    #[test]
    fn the_index_of_symbols_finds_what_asking_every_filter_finds() {
        let workload = Workload::draw(&Wanted { count: 500, symbols: 20, ..wanted() });
        for (trade, found) in workload.trades.iter().zip(&workload.matching) {
            let asked: Vec<u32> = (0u32..)
                .zip(&workload.filters)
                .filter(|(_, filter)| filter.matches(trade))
                .map(|(number, _)| number)
                .collect();
            assert_eq!(asked, *found);
        }
    }

    #[test]
    fn anchored_filters_are_spread_over_all_and_over_the_symbols() {
        let workload = Workload::draw(&wanted());
        let anchored = |filters: &[Filter]| filters.iter().filter(|f| f.symbol.is_some()).count();
        assert_eq!(anchored(&workload.filters), 9_000);
        assert_eq!(anchored(&workload.filters[..1_000]), 900);
        let of_one = workload.filters.iter().filter(|filter| filter.symbol == Some(17)).count();
        assert_eq!(of_one, 9);
    }

    #[test]
    fn bounds_are_exclusive() {
        let filter = Filter { symbol: Some(3), price: Some((100, 103)), quantity_below: Some(50) };
        let trade = Trade { symbol: 3, price: 101, quantity: 49 };
        assert!(filter.matches(&trade) && filter.matches(&Trade { price: 102, ..trade }));
        for price in [100, 103] {
            assert!(!filter.matches(&Trade { price, ..trade }));
        }
        assert!(!filter.matches(&Trade { quantity: 50, ..trade }));
        assert!(!filter.matches(&Trade { symbol: 4, ..trade }));
    }

    #[test]
    fn filters_that_must_match_more_than_they_can_match_all() {
        let wanted = Wanted { count: 10, anchored: 1.0, ..wanted() };
        let workload = Workload::draw(&wanted);
        let all = Filter {
            symbol: workload.filters[0].symbol,
            price: Some((-1, 1_000_000)),
            quantity_below: Some(1_000_000),
        };
        assert_eq!(workload.filters[0], all);
    }

    #[test]
    fn filters_are_written_in_each_dialect() {
        let filter =
            Filter { symbol: Some(3), price: Some((-1, 81_205)), quantity_below: Some(50) };
        let text = "sym = 'S0003' AND price > -0.01 AND price < 812.05 AND qty < 50";
        assert_eq!(filter.text(LookAt::Headers), text);
        let body = "b.sym = 'S0003' AND b.price > -0.01 AND b.price < 812.05 AND b.qty < 50";
        assert_eq!(filter.text(LookAt::Body), body);
        let table = filter.arguments(Dialect::JmsSelector, LookAt::Headers);
        assert_eq!(table, Table::new().with("x-filter-jms-selector", text));
        let table = filter.arguments(Dialect::HeadersExchange, LookAt::Headers);
        assert_eq!(table, Table::new().with("x-match", "all").with("sym", "S0003"));
    }

    #[test]
    fn bodies_have_the_size_asked_for_and_the_fields_that_filters_name() {
        let trade = Trade { symbol: 17, price: 1_203, quantity: 5 };
        let body = String::from_utf8(trade.json(9, 250).unwrap()).unwrap();
        assert_eq!(body.len(), 250);
        assert!(body.starts_with(r#"{"id":9,"#) && body.ends_with("\"}"), "{body}");
        assert!(body.contains(r#""sym":"S0017","price":12.03,"qty":5,"#), "{body}");
        assert!(trade.json(9, 50).is_none());
    }
}
