/**
 * Bounds on the resources that unauthenticated clients can use. They hold for the engine and the
 * public API; a proxy in front can only tighten them.
 */
export const HTTP_LIMITS = {
  /**
   * Time for a request's headers, from the connection or the end of the last response, in
   * milliseconds.
   */
  headersMs: 10_000,
  /** Time for the complete request. */
  requestMs: 30_000,
  /**
   * Idle time of a connection; longer than a load balancer's, so that the load balancer closes
   * first.
   */
  keepAliveMs: 65_000,
  /** Time without progress on a connection, for example because its client does not read. */
  idleMs: 120_000,
  /** Bytes of request line and headers, and of trailers. */
  headerBytes: 16 * 1024,
  /** Headers of a request. More are rejected, not dropped: a dropped header could skip a check. */
  headers: 100,
  /** Concurrent connections. */
  connections: 8_192,
  /** Connections of one address that a full server keeps while others connect. */
  connectionsPerAddress: 1_024,
  /** Requests of one connection that wait for their responses; later ones are not read yet. */
  pipelined: 16,
} as const;

export type HttpLimits = { [Name in keyof typeof HTTP_LIMITS]: number };
