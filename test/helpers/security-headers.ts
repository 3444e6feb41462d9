import type { IncomingHttpHeaders } from 'node:http';
import { expect } from 'vitest';

/** Written down a second time: what an answer says is what browsers are told. */
const READABLE_BY = { engine: 'same-origin', public: 'cross-origin' } as const;
const NOT_A_PAGE = "default-src 'none'; frame-ancestors 'none'";

/** What a page may load besides nothing: files of its own origin, and what it is sent to. */
const OWN = /^(?:style|script|img)-src 'self'$|^form-action '(?:self|none)'$|^base-uri 'none'$/;

/** Whatever the answer is: it is not sniffed, not framed, tells no other site and names no software. */
export function expectSecurityHeaders(
  headers: IncomingHttpHeaders,
  api: keyof typeof READABLE_BY,
): void {
  expect(headers).toMatchObject({
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
    'cross-origin-resource-policy': READABLE_BY[api],
  });
  const policy = String(headers['content-security-policy']);
  // A 304 of a page has the page's policy and no type.
  if (policy !== NOT_A_PAGE) {
    expect(headers['content-type'] ?? 'text/html').toMatch(/^text\/html/);
    const directives = policy.split('; ');
    expect(directives).toContain("default-src 'none'");
    expect(directives).toContain("frame-ancestors 'none'");
    const others = directives.filter((one) => !NOT_A_PAGE.includes(one));
    expect(others.filter((one) => !OWN.test(one))).toEqual([]);
  } else expect(String(headers['content-type'])).not.toMatch(/^text\/html/);
  for (const name of ['x-powered-by', 'server', 'strict-transport-security', 'set-cookie']) {
    expect(headers).not.toHaveProperty(name);
  }
  expect(headers['access-control-allow-origin']).toBe(api === 'public' ? '*' : undefined);
}
