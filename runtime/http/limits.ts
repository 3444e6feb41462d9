/**
 * What one client, or many, may cost a server before it has asked anything. Each bound holds for the
 * engine and the facade alike; what a proxy in front allows can only be less.
 */
export const HTTP_LIMITS = {
  /** For a request's headers to arrive, in milliseconds, from the connection's or the last answer's end on. */
  headersMs: 10_000,
  /** For the whole request to arrive. */
  requestMs: 30_000,
  /** For an idle connection; longer than a load balancer's own, so that it is the one to hang up. */
  keepAliveMs: 65_000,
  /** For a connection on which nothing moves, such as one whose client does not read. */
  idleMs: 120_000,
  /** Bytes of request line and headers, and of trailers. */
  headerBytes: 16 * 1024,
  /** Headers of a request. Refused rather than cut: a header that is passed over is a check that is. */
  headers: 100,
  /** Connections at a time. */
  connections: 8_192,
  /** Connections of one address that a full server keeps open for it while others connect. */
  connectionsPerAddress: 1_024,
  /** Requests of one connection that wait for their answers; what comes after them is not read yet. */
  pipelined: 16,
} as const;

export type HttpLimits = { [Name in keyof typeof HTTP_LIMITS]: number };
