-- What a support desk remembers, in SQLite or Postgres. Amounts are cents, so that they add up.
CREATE TABLE IF NOT EXISTS desk_users(
    user_id TEXT PRIMARY KEY, name TEXT NOT NULL, plan TEXT NOT NULL DEFAULT 'free', credit_cents INTEGER NOT NULL DEFAULT 0);
-- Every write leaves its key here in the same transaction: who comes again with the key gets what was answered then.
CREATE TABLE IF NOT EXISTS desk_acts(key TEXT PRIMARY KEY, answer TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS desk_tickets(
    ticket_id TEXT PRIMARY KEY, user_id TEXT NOT NULL REFERENCES desk_users, subject TEXT NOT NULL, body TEXT NOT NULL,
    priority TEXT NOT NULL, status TEXT NOT NULL DEFAULT 'open');
CREATE TABLE IF NOT EXISTS desk_promos(
    code TEXT PRIMARY KEY, credit_cents INTEGER NOT NULL, uses_left INTEGER NOT NULL CHECK(uses_left >= 0));
CREATE TABLE IF NOT EXISTS desk_redemptions(
    user_id TEXT NOT NULL REFERENCES desk_users, code TEXT NOT NULL REFERENCES desk_promos, PRIMARY KEY(user_id, code));
CREATE TABLE IF NOT EXISTS desk_items(
    item TEXT PRIMARY KEY, price_cents INTEGER NOT NULL, stock INTEGER NOT NULL CHECK(stock >= 0));
CREATE TABLE IF NOT EXISTS desk_orders(
    order_id TEXT PRIMARY KEY, user_id TEXT NOT NULL REFERENCES desk_users, item TEXT NOT NULL REFERENCES desk_items,
    quantity INTEGER NOT NULL, total_cents INTEGER NOT NULL, status TEXT NOT NULL DEFAULT 'placed');
