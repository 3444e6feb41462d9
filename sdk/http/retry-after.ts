/**
 * The milliseconds that a `Retry-After` asks to wait (RFC 9110 §10.2.3): seconds, or a date, which
 * is held against the answer's own `Date` so that the two clocks need not agree. Null when there is
 * none that can be read.
 */
export function retryAfterMs(headers: Headers, now: number): number | null {
  const text = headers.get('retry-after')?.trim() ?? '';
  if (/^[0-9]{1,9}$/.test(text)) return Number(text) * 1000;
  const until = httpDate(text);
  if (until === null) return null;
  return Math.max(0, until - (httpDate(headers.get('date') ?? '') ?? now));
}

/** IMF-fixdate, which is all that may be sent; `Date.parse` alone would take almost anything. */
function httpDate(text: string): number | null {
  if (!/^[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT$/.test(text)) return null;
  const at = Date.parse(text);
  return Number.isNaN(at) ? null : at;
}
