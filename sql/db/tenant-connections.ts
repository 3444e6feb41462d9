import type { Pool } from './transaction.js';

/** Too much work of this tenant is queued. Nothing was done: retry later. */
export class TenantBusyError extends Error {
  override readonly name = 'TenantBusyError';
}

export interface TenantLimits {
  /** Concurrent units of work, all tenants together. */
  total: number;
  /** Concurrent units of work of one tenant. */
  perTenant: number;
  /** Queued units of work of one tenant; more are rejected at once. */
  maxWaiting: number;
  /** Longest time in the queue, in milliseconds. */
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
  waiting: Set<() => void>;
}

/** Limits work by tenant. Tenants with queued work are served round-robin. */
export class TenantLimiter {
  private active = 0;
  private readonly tenants = new Map<number, Tenant>();

  constructor(private readonly limits: TenantLimits) {}

  /**
   * Runs `work` when the tenant has a free slot.
   *
   * @param timeoutMs longest time in the queue
   * @throws TenantBusyError when the tenant's queue is full or the timeout passed
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
      return Promise.reject(new TenantBusyError('the queue of the tenant is full'));
    return new Promise((resolve, reject) => {
      const serve = (): void => {
        clearTimeout(timer);
        tenant.waiting.delete(serve);
        this.begin(tenant);
        resolve();
      };
      const timer = setTimeout(() => {
        tenant.waiting.delete(serve);
        reject(new TenantBusyError('no free slot for the tenant within the timeout'));
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

/** The connections for every tenant request except admissions: one tenant's slow reads delay only itself. */
export class TenantConnections {
  private readonly sql: Pool;
  private readonly limiter: TenantLimiter;

  /** `total` must not exceed the pool's connections. */
  constructor({ sql, ...limits }: TenantLimits & { sql: Pool }) {
    this.sql = sql;
    this.limiter = new TenantLimiter(limits);
  }

  run<T>(tenantNo: number, work: (sql: Pool) => Promise<T>): Promise<T> {
    return this.limiter.run(tenantNo, () => work(this.sql));
  }
}
