import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { packageRoot } from '#runtime/process/package-root';

export interface Healthcheck {
  test: string[];
}

/** As far as the deployment uses it; the schema holds the rest. */
export interface Service {
  image: string;
  build?: unknown;
  profiles?: string[];
  command?: string[];
  entrypoint?: string[];
  user?: string;
  pid?: string;
  environment?: Record<string, string>;
  secrets?: string[];
  configs?: { source: string; target: string }[];
  volumes?: string[];
  tmpfs?: string[];
  ports?: string[];
  networks?: string[];
  network_mode?: string;
  depends_on?: Record<string, { condition: string }>;
  healthcheck?: Healthcheck;
  deploy?: { replicas?: number };
  read_only?: boolean;
  cap_drop?: string[];
  cap_add?: string[];
  security_opt?: string[];
  privileged?: boolean;
  container_name?: string;
  stop_signal?: string;
  stop_grace_period?: string;
}

export interface Compose {
  services: Record<string, Service>;
  networks: Record<string, { internal?: boolean }>;
  volumes: Record<string, unknown>;
  configs: Record<string, { file: string }>;
  secrets: Record<string, { file: string }>;
}

/** `${NAME:-default}`, `${NAME:?what to say}` and `$$`, as compose has them; anything else is an error. */
export function interpolate(text: string, env: Readonly<Record<string, string>>): string {
  return text.replace(
    /\$(?:(\$)|\{([A-Z_]+)(?::([-?])([^}]*))?\}|(.?))/g,
    (whole, dollar?: string, name?: string, operator?: string, word = '') => {
      if (dollar !== undefined) return '$';
      if (name === undefined) throw new Error(`${whole} is no variable in ${text}`);
      const value = env[name];
      if (value !== undefined && value !== '') return value;
      if (operator === '?') throw new Error(`${name} is not set: ${String(word)}`);
      return operator === '-' ? String(word) : '';
    },
  );
}

function interpolated(value: unknown, env: Readonly<Record<string, string>>): unknown {
  if (typeof value === 'string') return interpolate(value, env);
  if (Array.isArray(value)) return value.map((one) => interpolated(one, env));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, one]) => [name, interpolated(one, env)]),
  );
}

export const COMPOSE_FILE = join(packageRoot, 'docker-compose.yml');

/** What compose would make of the file with these variables, anchors merged. */
export function readCompose(env: Readonly<Record<string, string>>): Compose {
  const document: unknown = parse(readFileSync(COMPOSE_FILE, 'utf8'), { merge: true });
  return interpolated(document, env) as Compose;
}

/** Services in an order in which each comes after those that it depends on. */
export function inOrder(services: Record<string, Service>, names: readonly string[]): string[] {
  const done: string[] = [];
  const visit = (name: string): void => {
    if (done.includes(name)) return;
    Object.keys(services[name]?.depends_on ?? {}).forEach(visit);
    done.push(name);
  };
  names.forEach(visit);
  return done;
}
