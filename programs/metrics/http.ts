import { distribution, SECONDS, Tally, type Count } from '#runtime/ops/instruments';
import type { Registry } from '#runtime/ops/registry';

/** Label for every unknown path: clients must not be able to create labels. */
const NO_ROUTE = 'none';
/** nginx's status for a client that disconnected before the response. */
const CLIENT_GONE = 499;
const METHODS = new Set(['GET', 'HEAD', 'POST', 'OPTIONS', 'PUT', 'PATCH', 'DELETE']);

export interface HttpMetrics {
  counted(route: string | null, method: string, status: number | null): void;
  took(route: string | null, ms: number): void;
}

export function httpMetrics(registry: Registry, api: 'engine' | 'public'): HttpMetrics {
  const requests = new Tally(
    registry,
    {
      name: 'svc_http_requests_total',
      help: 'HTTP requests by route, method and status',
    },
    ['api', 'route', 'method', 'status'],
  );
  const durations = distribution(
    registry,
    {
      name: 'svc_http_request_duration_seconds',
      help: 'Time from request line to end of response; one in 64 for public lookups',
    },
    SECONDS.short,
    ['api', 'route'],
  );
  // Nested maps: building a label key would cost more than a lookup may.
  const routes = new Map<string, Map<string, Map<number, Count>>>();
  const inside = <K, V>(map: Map<K, V>, key: K, make: () => V): V => {
    let found = map.get(key);
    if (found === undefined) map.set(key, (found = make()));
    return found;
  };
  // Consecutive requests are mostly of one kind; caching the last one saves the lookup.
  let last: { route: string | null; method: string; status: number | null; count: Count } | null =
    null;
  return {
    counted: (route, method, status) => {
      if (
        last !== null &&
        last.route === route &&
        last.method === method &&
        last.status === status
      ) {
        last.count.n += 1;
        return;
      }
      const asked = METHODS.has(method) ? method : 'other';
      const byMethod = inside(
        routes,
        route ?? NO_ROUTE,
        () => new Map<string, Map<number, Count>>(),
      );
      const byStatus = inside(byMethod, asked, () => new Map<number, Count>());
      const code = status ?? CLIENT_GONE;
      const count = inside(byStatus, code, () =>
        requests.of({ api, route: route ?? NO_ROUTE, method: asked, status: String(code) }),
      );
      count.n += 1;
      last = { route, method, status, count };
    },
    took: (route, ms) => durations.observe({ api, route: route ?? NO_ROUTE }, ms / 1_000),
  };
}
