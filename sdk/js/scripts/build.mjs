// Builds the package twice: ES modules in dist/src (and the tests in dist/test), CommonJS in dist/cjs.
//
// `npm install ../sdk/js` runs this as `prepare` in a folder whose own dependencies npm does not install, so the
// compiler may be missing. It is installed then, as the lock file says.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const COMPILER = fileURLToPath(new URL('../node_modules/typescript/bin/tsc', import.meta.url));

function run(command, ...args) {
  const { status, error } = spawnSync(command, args, { cwd: ROOT, stdio: 'inherit', shell: command === 'npm' });
  if (error) throw error;
  if (status !== 0) process.exit(status ?? 1);
}

// `--ignore-scripts`, or the installation would call this script again.
if (!existsSync(COMPILER)) run('npm', 'ci', '--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund');
rmSync(new URL('../dist', import.meta.url), { recursive: true, force: true });
run(process.execPath, COMPILER, '--project', 'tsconfig.json');
run(process.execPath, COMPILER, '--project', 'tsconfig.cjs.json');
mkdirSync(new URL('../dist/cjs', import.meta.url), { recursive: true });
// The package is of type `module`; this folder is not.
writeFileSync(new URL('../dist/cjs/package.json', import.meta.url), '{ "type": "commonjs" }\n');
