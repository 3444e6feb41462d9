/**
 * Of the engine: a rate that no load here comes to. Every request is still counted, in Redis, as with
 * any other limit; it is only never refused for it.
 */
export const UNLIMITED = { RATE_LIMIT: '1000000' } as const;
