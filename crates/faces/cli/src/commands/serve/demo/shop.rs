//! The shop as values: which orders come, what follows from them, what fails, and how fast each group works. Plain
//! functions of a number or a time, so that a second demo shows the same.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Customers; orders come from them in turn. The last one has typed her address wrongly.
const CUSTOMERS: [(&str, &str); 8] = [
    ("ada", "ada@example.com"),
    ("brendan", "brendan@example.com"),
    ("chidi", "chidi@example.net"),
    ("dolores", "dolores@example.com"),
    ("emre", "emre@example.org"),
    ("fatou", "fatou@example.net"),
    ("grace", "grace@example.com"),
    ("hedy", "hedy@@example.com"),
];
/// Articles and their prices in cents.
const ARTICLES: [(&str, u64); 5] =
    [("kettle", 2990), ("teapot", 3450), ("cup", 790), ("strainer", 450), ("oolong", 1280)];
/// Among so many orders there is one from the customer without a valid address.
const MISTYPED_EVERY: u64 = 40;
/// Among so many orders there is one for which the bank does not answer at first.
const BANK_SILENT_EVERY: u64 = 17;
/// Among so many orders there is one for an article that the warehouse does not know.
const UNKNOWN_ARTICLE_EVERY: u64 = 150;
/// Among so many orders there is one whose customer is asked for a review later, the first order included. At the
/// shop's rate that is one in half a minute, so about twenty reminders wait at a time.
const REVIEWED_EVERY: u64 = 100;
/// How long a reminder waits before it is delivered.
pub(super) const REVIEW_AFTER: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) order: u64,
    pub(super) customer: String,
    pub(super) email: String,
    pub(super) article: String,
    pub(super) quantity: u64,
    pub(super) total_cents: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Payment {
    pub(super) order: u64,
    pub(super) customer: String,
    pub(super) email: String,
    pub(super) paid_cents: u64,
}

/// Asks for a review of an order, some time after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reminder {
    pub(super) order: u64,
    pub(super) customer: String,
    pub(super) email: String,
    pub(super) article: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Email {
    pub(super) order: u64,
    pub(super) to: String,
    pub(super) subject: String,
}

pub(super) fn order(number: u64) -> Order {
    let careful = (CUSTOMERS.len() - 1) as u64;
    let at = if number % MISTYPED_EVERY == MISTYPED_EVERY / 4 { careful } else { number % careful };
    let (customer, email) = CUSTOMERS[at as usize];
    let (mut article, cents) = ARTICLES[(number / 3) as usize % ARTICLES.len()];
    if number % UNKNOWN_ARTICLE_EVERY == UNKNOWN_ARTICLE_EVERY / 5 {
        article = "samovar";
    }
    let quantity = 1 + number % 3;
    Order {
        order: number,
        customer: customer.to_owned(),
        email: email.to_owned(),
        article: article.to_owned(),
        quantity,
        total_cents: quantity * cents,
    }
}

/// The payment of an order, or why it failed. The second attempt succeeds.
pub(super) fn pay(order: &Order, attempt: u32) -> Result<Payment, String> {
    if order.order.is_multiple_of(BANK_SILENT_EVERY) && attempt == 1 {
        return Err("the bank did not answer".to_owned());
    }
    Ok(Payment {
        order: order.order,
        customer: order.customer.clone(),
        email: order.email.clone(),
        paid_cents: order.total_cents,
    })
}

/// The reminder that an order sets, if it sets one.
pub(super) fn reminder(order: &Order) -> Option<Reminder> {
    (order.order % REVIEWED_EVERY == 1).then(|| Reminder {
        order: order.order,
        customer: order.customer.clone(),
        email: order.email.clone(),
        article: order.article.clone(),
    })
}

/// The e-mail about a payment, or why there is none. Depends on the address alone: a letter that is replayed with a
/// better one succeeds.
pub(super) fn confirm(payment: &Payment) -> Result<Email, String> {
    email(payment.order, &payment.email, format!("Thank you for order {}", payment.order))
}

/// The e-mail that a reminder becomes, or why there is none.
pub(super) fn ask_for_review(reminder: &Reminder) -> Result<Email, String> {
    email(reminder.order, &reminder.email, format!("How do you like the {}?", reminder.article))
}

fn email(order: u64, to: &str, subject: String) -> Result<Email, String> {
    let is_address = to.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.contains('@'));
    if !is_address {
        return Err(format!("the address {to} is not valid"));
    }
    Ok(Email { order, to: to.to_owned(), subject })
}

/// Packs an order, or says why not.
pub(super) fn pack(order: &Order) -> Result<(), String> {
    let is_known = ARTICLES.iter().any(|(article, _)| *article == order.article);
    if is_known { Ok(()) } else { Err(format!("the warehouse has no article {}", order.article)) }
}

/// The pause after an order: two to five orders per second, in slow waves.
pub(super) fn pause_after(number: u64) -> Duration {
    const WAVE: u64 = 120;
    let place = number % WAVE;
    let up = place.min(WAVE - place);
    Duration::from_millis(500 - 5 * up)
}

/// How long the warehouse takes for one order: while one person works it falls behind, then others come to help.
pub(super) fn packing_time(since_opening: Duration) -> Duration {
    const CYCLE_S: u64 = 120;
    const ALONE_S: u64 = 80;
    let is_alone = since_opening.as_secs() % CYCLE_S < ALONE_S;
    Duration::from_millis(if is_alone { 700 } else { 50 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_few_orders_fail_every_time() {
        let orders: Vec<Order> = (1..=600).map(order).collect();
        let payments: Vec<Payment> = orders.iter().map(|order| pay(order, 2).unwrap()).collect();
        let unsent = payments.iter().filter(|payment| confirm(payment).is_err()).count();
        let unpacked = orders.iter().filter(|order| pack(order).is_err()).count();
        let unpaid = orders.iter().filter(|order| pay(order, 1).is_err()).count();
        assert_eq!((unsent, unpacked, unpaid), (15, 4, 35));
        assert!(orders.iter().take(10).any(|order| order.customer == "hedy"), "a visitor sees one soon");
    }

    #[test]
    fn a_letter_with_a_better_address_succeeds() {
        let mut payment = pay(&order(10), 2).unwrap();
        assert_eq!(confirm(&payment).unwrap_err(), "the address hedy@@example.com is not valid");
        payment.email = "hedy@example.com".to_owned();
        assert_eq!(confirm(&payment).unwrap().to, "hedy@example.com");
    }

    #[test]
    fn few_reminders_wait_at_a_time_and_all_can_be_sent() {
        let (mut now, mut number, mut due) = (Duration::ZERO, 0, Vec::new());
        while now < 2 * REVIEW_AFTER {
            number += 1;
            if let Some(reminder) = reminder(&order(number)) {
                assert!(ask_for_review(&reminder).is_ok(), "{reminder:?}");
                due.push(now + REVIEW_AFTER);
            }
            now += pause_after(number);
        }
        let waiting = due.iter().filter(|due| **due > now).count();
        assert!((10..=30).contains(&waiting), "{waiting} reminders wait");
        assert!(reminder(&order(1)).is_some(), "a visitor sees one at once");
    }

    #[test]
    fn the_warehouse_falls_behind_and_catches_up_within_a_cycle() {
        let (mut now, mut number, mut waiting, mut most) = (Duration::ZERO, 0, 0i64, 0);
        let (mut next_order, mut free) = (Duration::ZERO, Duration::ZERO);
        while now < Duration::from_secs(120) {
            if next_order <= free {
                now = next_order;
                (number, waiting) = (number + 1, waiting + 1);
                next_order += pause_after(number);
            } else {
                now = free;
                waiting = (waiting - 1).max(0);
                free += packing_time(now);
            }
            most = most.max(waiting);
        }
        assert!(most > 60, "{most} orders waited at most");
        assert!(waiting < 10, "{waiting} orders wait at the end of the cycle");
    }
}
