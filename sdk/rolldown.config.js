import { chmod, readFile } from 'node:fs/promises';
import { defineConfig } from 'rolldown';

// The compiler has made ../dist/sdk and ../dist/protocol of the sources; here the part of the
// kernel that the SDK uses moves into the package. What package.json names stays an import.
const { bin, dependencies } = JSON.parse(
  await readFile(new URL('package.json', import.meta.url), 'utf8'),
);
const packages = Object.keys(dependencies);

/** npm does this when it installs; in the workspace the build comes after that. */
const executable = {
  name: 'executable',
  writeBundle: () =>
    Promise.all(Object.values(bin).map((file) => chmod(new URL(file, import.meta.url), 0o755))),
};

export default defineConfig({
  input: {
    index: '../dist/sdk/index.js',
    'cli/svc': '../dist/sdk/cli/svc.js',
    'adapters/index': '../dist/sdk/adapters/index.js',
    'adapters/mcp': '../dist/sdk/adapters/mcp.js',
    'adapters/ai': '../dist/sdk/adapters/ai.js',
    'adapters/langchain': '../dist/sdk/adapters/langchain.js',
  },
  platform: 'neutral',
  external: (id) =>
    id.startsWith('node:') || packages.some((name) => id === name || id.startsWith(`${name}/`)),
  plugins: [executable],
  output: {
    dir: 'dist',
    cleanDir: true,
    format: 'esm',
    chunkFileNames: 'chunks/[name].js',
  },
  // Nothing is published of which the build has a doubt.
  onLog: (_level, log) => {
    throw new Error(log.message);
  },
});
