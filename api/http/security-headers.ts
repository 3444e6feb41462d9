/** For responses that are not pages: no subresources, no framing. */
export const NO_CONTENT_POLICY = "default-src 'none'; frame-ancestors 'none'";

/**
 * Headers of every response of both APIs, including those sent before routing.
 *
 * `Strict-Transport-Security` is absent: both APIs speak plain HTTP, where RFC 6797 (7.2) forbids
 * it. The TLS proxy sets it.
 *
 * @param readableBy `cross-origin` lets pages of any origin load the response
 */
export function securityHeaders(readableBy: 'same-origin' | 'cross-origin') {
  return {
    'X-Content-Type-Options': 'nosniff',
    'Content-Security-Policy': NO_CONTENT_POLICY,
    'Cross-Origin-Resource-Policy': readableBy,
    // A path may hold a share token, which a Referer header would leak.
    'Referrer-Policy': 'no-referrer',
  };
}
