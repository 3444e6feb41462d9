import type { MetricObjectWithValues, MetricValue } from 'prom-client';

/** One metric with its values of the moment, as it can be sent from one process to another. */
export type MetricOfMoment = MetricObjectWithValues<MetricValue<string>> & {
  /** How values of several processes become one. */
  aggregator?: string;
};

/** Whether a program can do its work, and what it says of that: no secret, tenant, id or payload. */
export interface Readiness {
  ready: boolean;
  says: Readonly<Record<string, unknown>>;
}

/** What an operator can ask of a program. Neither answer may rest on anything that can hang. */
export interface OpsSource {
  metrics(): Promise<MetricOfMoment[]>;
  readiness(): Promise<Readiness>;
}
