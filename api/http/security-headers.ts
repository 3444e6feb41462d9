/** What no page may do with an answer that is not a page: load anything for it, or put it in a frame. */
export const NO_CONTENT_POLICY = "default-src 'none'; frame-ancestors 'none'";

/**
 * On every answer of both APIs, whoever gives it: the listener in front of Express, Express, or the
 * server for what never was a request.
 *
 * `Strict-Transport-Security` is not among them. Both APIs speak plain HTTP, where it must not be sent
 * (RFC 6797, 7.2): whoever ends TLS in front of them says it. Nor is there anything that names software.
 *
 * @param readableBy `cross-origin`: what any page may read may be loaded by it too
 */
export function securityHeaders(readableBy: 'same-origin' | 'cross-origin') {
  return {
    'X-Content-Type-Options': 'nosniff',
    'Content-Security-Policy': NO_CONTENT_POLICY,
    'Cross-Origin-Resource-Policy': readableBy,
    // A path may hold a share token: no other site is told of it.
    'Referrer-Policy': 'no-referrer',
  };
}
