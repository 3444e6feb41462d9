// The CycloneDX SBOM of the production dependencies. `npm sbom --omit dev` also omits packages that both
// production and development need, such as zod. Therefore this script lists all packages, and removes
// those that the lockfile marks as development only.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

const bom = JSON.parse(
  execFileSync('npm', ['sbom', '--sbom-format', 'cyclonedx'], {
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
    stdio: ['ignore', 'pipe', 'ignore'],
  }),
);
const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8'));

const production = new Set(
  Object.entries(packages)
    .filter(([, { dev, devOptional }]) => !(dev ?? devOptional ?? false))
    .map(([path, { version }]) => `${path.replace(/.*node_modules\//, '')}@${version}`),
);
const isProduction = ({ name, version }) => production.has(`${name}@${version}`);

bom.components = bom.components.filter(isProduction);
const kept = new Set([
  bom.metadata.component['bom-ref'],
  ...bom.components.map((one) => one['bom-ref']),
]);
bom.dependencies = bom.dependencies
  .filter(({ ref }) => kept.has(ref))
  .map(({ ref, dependsOn = [] }) => ({ ref, dependsOn: dependsOn.filter((one) => kept.has(one)) }));
console.log(JSON.stringify(bom, null, 2));
