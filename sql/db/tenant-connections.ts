import type { Pool } from './transaction.js';

/** The tenant has too much work waiting. Nothing was done: try again later. */
export class TenantBusyError extends Error {
  override readonly name = 'TenantBusyError';
}

export interface TenantLimits {
  /** Units of work at a time, of all tenants together. */
  total: number;
  /** Units of work of one tenant at a time. */
  perTenant: number;
  /** Units of work of one tenant that may wait; more are refused at once. */
  maxWaiting: number;
  /** Longest wait, in milliseconds. */
  timeoutMs: number;
}

export const TENANT_CONNECTIONS: TenantLimits = {
  total: 8,
  perTenant: 2,
  maxWaiting: 1_000,
  timeoutMs: 2_000,
};

interface Tenant {
  active: number;
  /** First come, first served. */
  waiting: Set<() => void>;
}

/** Limits work by tenant. Tenants with waiting work are served in turn. */
export class TenantLimiter {
  private active = 0;
  /** In the order in which they are served next. */
  private readonly tenants = new Map<number, Tenant>();

  constructor(private readonly limits: TenantLimits) {}

  /**
   * Runs `work` once the tenant's turn has come.
   *
   * @param timeoutMs longest wait
   * @throws TenantBusyError when too much of the tenant waits already, or this waited too long
   */
  async run<T>(
    tenantNo: number,
    work: () => Promise<T>,
    timeoutMs = this.limits.timeoutMs,
  ): Promise<T> {
    const tenant = this.tenants.get(tenantNo) ?? { active: 0, waiting: new Set() };
    this.tenants.set(tenantNo, tenant);
    try {
      if (this.hasRoom(tenant)) this.begin(tenant);
      else await this.turn(tenant, timeoutMs);
      try {
        return await work();
      } finally {
        this.end(tenant);
      }
    } finally {
      if (tenant.active === 0 && tenant.waiting.size === 0) this.tenants.delete(tenantNo);
    }
  }

  private hasRoom(tenant: Tenant): boolean {
    return this.active < this.limits.total && tenant.active < this.limits.perTenant;
  }

  private begin(tenant: Tenant): void {
    this.active += 1;
    tenant.active += 1;
  }

  private turn(tenant: Tenant, timeoutMs: number): Promise<void> {
    if (tenant.waiting.size >= this.limits.maxWaiting)
      return Promise.reject(new TenantBusyError('too much of this tenant waits'));
    return new Promise((resolve, reject) => {
      const serve = (): void => {
        clearTimeout(timer);
        tenant.waiting.delete(serve);
        this.begin(tenant);
        resolve();
      };
      const timer = setTimeout(() => {
        tenant.waiting.delete(serve);
        reject(new TenantBusyError('the tenant waited too long'));
      }, timeoutMs);
      tenant.waiting.add(serve);
    });
  }

  private end(tenant: Tenant): void {
    this.active -= 1;
    tenant.active -= 1;
    for (const [no, next] of this.tenants) {
      const [serve] = next.waiting;
      if (serve === undefined || !this.hasRoom(next)) continue;
      this.tenants.delete(no);
      this.tenants.set(no, next);
      serve();
      break;
    }
  }
}

/**
 * Connections for everything that a tenant requests besides admissions, so that one tenant's slow
 * reads delay only its own requests.
 */
export class TenantConnections {
  private readonly sql: Pool;
  private readonly limiter: TenantLimiter;

  /** The pool has at least `total` connections for this. */
  constructor({ sql, ...limits }: TenantLimits & { sql: Pool }) {
    this.sql = sql;
    this.limiter = new TenantLimiter(limits);
  }

  /** Runs `work` with the pool; see `TenantLimiter`. */
  run<T>(tenantNo: number, work: (sql: Pool) => Promise<T>): Promise<T> {
    return this.limiter.run(tenantNo, () => work(this.sql));
  }
}
