import type { PublicMetrics } from '#api/public/operation';
import { STATUSES } from '#protocol/status';
import { distribution, SECONDS, Tally, type Count, type Registry } from '#runtime/ops/instruments';

/** Label for every unknown path: clients must not be able to create labels. */
const NO_ROUTE = 'none';
/** nginx's status for a client that disconnected before the response. */
const CLIENT_GONE = 499;
const METHODS = new Set(['GET', 'HEAD', 'POST', 'OPTIONS', 'PUT', 'PATCH', 'DELETE']);

export function httpMetrics(registry: Registry, api: 'engine' | 'public') {
  const requests = new Tally(
    registry,
    'svc_http_requests_total',
    'HTTP requests by route, method and status; limit is `tenant` if the tenant exceeded its own share',
    ['api', 'route', 'method', 'status', 'limit'],
  );
  const durations = distribution(
    registry,
    'svc_http_request_duration_seconds',
    'Time from request line to end of response; samples one in 64 public lookups',
    SECONDS.short,
    ['api', 'route'],
  );
  // `requests.of` would cost a hundredth of a lookup.
  const counts = new Map<string, Count>();
  return {
    counted: (
      route: string | null,
      method: string,
      status: number | null,
      limit: 'tenant' | '' = '',
    ): void => {
      const key = `${route} ${method} ${status} ${limit}`;
      let count = counts.get(key);
      if (count === undefined) {
        count = requests.of({
          api,
          route: route ?? NO_ROUTE,
          method: METHODS.has(method) ? method : 'other',
          status: String(status ?? CLIENT_GONE),
          // Prometheus treats an empty label as absent, so queries also work for programs without this label.
          limit,
        });
        counts.set(key, count);
      }
      count.n += 1;
    },
    took: (route: string | null, ms: number): void =>
      durations.observe({ api, route: route ?? NO_ROUTE }, ms / 1_000),
  };
}

export function publicMetrics(registry: Registry): PublicMetrics {
  const http = httpMetrics(registry, 'public');
  const help = 'Lookups answered with a verdict, by status';
  const lookups = new Tally(registry, 'svc_lookups_total', help, ['status']);
  const statuses = new Map(STATUSES.map((status) => [status as string, lookups.of({ status })]));
  // Counts unknown statuses, which occur when another version rendered the snapshot.
  const other = lookups.of({ status: 'other' });
  return {
    countRequest: http.counted,
    observeDuration: http.took,
    countVerdict: (status) => {
      (statuses.get(status) ?? other).n += 1;
    },
  };
}
